// What is made from the tables besides --help: `guardian --print WHAT`.

package enum Generated: String, CaseIterable, Sendable {
  case man
  case man5
  case manctl
  case completionBash = "completion-bash"
  case completionZsh = "completion-zsh"
  case completionFish = "completion-fish"
  case optionsMarkdown = "options-markdown"
  case exampleTOML = "example-toml"
  case handover

  package var text: String {
    switch self {
    case .man: Manual.guardian()
    case .man5: Manual.file()
    case .manctl: Manual.guardianctl()
    case .completionBash: BashCompletion.text()
    case .completionZsh: ZshCompletion.text()
    case .completionFish: FishCompletion.text()
    case .optionsMarkdown: Reference.markdown()
    case .exampleTOML: Reference.example()
    case .handover: guardianHandover + "\n"
    }
  }
}
