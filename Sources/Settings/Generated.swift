// What is made from the table of options besides help: manuals, completions, reference.

enum Generated: String, CaseIterable {
  case man
  var text: String { "" }
}
