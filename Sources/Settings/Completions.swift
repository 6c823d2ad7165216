// Completions for bash, zsh and fish, from the tables.

/// A flag as a shell completes it.
private struct ShellFlag {
  let name: String
  let short: Character?
  /// nil: no value.
  let argument: String?
  let completion: Completion
  let isList: Bool
  let help: String

  static let guardian: [ShellFlag] =
    Option.available.filter { $0.sources.contains(.flag) }.map {
      ShellFlag(
        name: $0.name, short: $0.short, argument: $0.isSwitch ? nil : $0.argument,
        completion: $0.completion, isList: $0.isList, help: $0.help)
    } + common

  static let guardianctl: [ShellFlag] =
    ControlOption.available.map {
      ShellFlag(
        name: $0.name, short: $0.short, argument: $0.argument, completion: $0.completion,
        isList: false, help: $0.help)
    } + common

  static let common = [
    ShellFlag(
      name: "help", short: "h", argument: nil, completion: .none, isList: false, help: "Print help"),
    ShellFlag(
      name: "usage", short: nil, argument: nil, completion: .none, isList: false,
      help: "Print a short usage message"),
    ShellFlag(
      name: "version", short: "V", argument: nil, completion: .none, isList: false,
      help: "Print the version"),
  ]
}

/// In single quotes, whatever it holds.
private func single(_ text: String) -> String {
  "'" + text.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''")
    + "'"
}

// MARK: bash

enum BashCompletion {
  static func text() -> String {
    """
    # bash completion for guardian and guardianctl; made by guardian --print completion-bash.

    # --option=value: three words where COMP_WORDBREAKS has the sign, else one.
    _guardian_split() {
      joined=""
      if [[ $cur == = ]]; then
        cur=""
      elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD-2]}
      elif [[ $cur == --*=* ]]; then
        prev=${cur%%=*}
        joined=$prev=
        cur=${cur#*=}
      fi
    }

    _guardian_join() {
      COMPREPLY=("${COMPREPLY[@]/#/$joined}")
      [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == "$joined" ]] && COMPREPLY=()
      return 0
    }

    # The names of guarded programs.
    _guardian_programs() {
      "${COMP_WORDS[0]}" completion-names 2>/dev/null
    }

    _guardian_value() {
      case $1 in
    \(values(ShellFlag.guardian))
      *) return 1 ;;
      esac
    }

    _guardian() {
      local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} joined i
      COMPREPLY=()
      for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --)
          if ((i + 1 == COMP_CWORD)); then
            mapfile -t COMPREPLY < <(compgen -c -- "$cur")
          else
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
          fi
          return ;;
        \(valued(ShellFlag.guardian)))
          ((i++))
          [[ ${COMP_WORDS[i]} == = ]] && ((i++)) ;;
        -*) ;;
        *)
          mapfile -t COMPREPLY < <(compgen -f -- "$cur")
          return ;;
        esac
      done
      _guardian_split
      _guardian_value "$prev" && _guardian_join && return
      if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "\(names(ShellFlag.guardian))" -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -c -- "$cur")
      fi
    }

    _guardianctl_value() {
      case $1 in
    \(values(ShellFlag.guardianctl))
      *) return 1 ;;
      esac
    }

    _guardianctl() {
      local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} joined i verb="" count=0
      COMPREPLY=()
      for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --) return ;;
        \(valued(ShellFlag.guardianctl)))
          ((i++))
          [[ ${COMP_WORDS[i]} == = ]] && ((i++)) ;;
        -*) ;;
        *) if [[ -z $verb ]]; then verb=${COMP_WORDS[i]}; else ((count++)); fi ;;
        esac
      done
      _guardian_split
      _guardianctl_value "$prev" && _guardian_join && return
      if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "\(names(ShellFlag.guardianctl))" -- "$cur")
        return
      fi
      case $verb:$count in
      :*) mapfile -t COMPREPLY < <(compgen -W "\(verbs())" -- "$cur") ;;
    \(operands())
      esac
    }

    complete -F _guardian guardian
    complete -F _guardianctl guardianctl

    """
  }

  private static func names(_ flags: [ShellFlag]) -> String {
    flags.map { "--" + $0.name }.joined(separator: " ")
  }

  private static func verbs() -> String {
    ControlVerb.available.map(\.name).joined(separator: " ")
  }

  private static func patterns(_ flag: ShellFlag) -> String {
    (flag.short.map { "-\($0) | " } ?? "") + "--" + flag.name
  }

  private static func valued(_ flags: [ShellFlag]) -> String {
    flags.filter { $0.argument != nil }.map(patterns).joined(separator: " | ")
  }

  private static func values(_ flags: [ShellFlag]) -> String {
    flags.filter { $0.argument != nil }.map { flag in
      "  \(patterns(flag))) " + reply(flag.completion) + " ;;"
    }.joined(separator: "\n")
  }

  private static func operands() -> String {
    ControlVerb.available.flatMap { verb in
      verb.completions.enumerated().map { "  \(verb.name):\($0)) " + reply($1) + " ;;" }
    }.joined(separator: "\n")
  }

  private static func reply(_ completion: Completion) -> String {
    let arguments: String
    switch completion {
    case .none: return "COMPREPLY=()"
    case .file: arguments = "-f"
    case .directory: arguments = "-d"
    case .words(let words): arguments = "-W \"" + words.joined(separator: " ") + "\""
    case .user: arguments = "-u"
    case .group: arguments = "-g"
    case .variable: arguments = "-v -S ="
    case .programs(let words):
      let more = words.isEmpty ? "" : " " + words.joined(separator: " ")
      arguments = "-W \"$(_guardian_programs)\(more)\""
    }
    return "mapfile -t COMPREPLY < <(compgen \(arguments) -- \"$cur\")"
  }
}

// MARK: zsh

enum ZshCompletion {
  static func text() -> String {
    """
    #compdef guardian guardianctl
    # zsh completion for guardian and guardianctl; made by guardian --print completion-zsh.

    _guardian() {
      _arguments -s -S \\
    \(specifications(ShellFlag.guardian))
        '(-)1:command: _command_names -e' \\
        '*::argument: _normal'
    }

    _guardianctl_commands() {
      local -a commands=(
    \(ControlVerb.available.map { "    " + single($0.name + ":" + colons($0.help)) }
      .joined(separator: "\n"))
      )
      _describe command commands
    }

    _guardian_programs() {
      local -a programs=(${(f)"$(_call_program programs ${(q)service} completion-names 2>/dev/null)"})
      compadd -a programs
    }

    _guardianctl_operands() {
      case $words[1]:$((CURRENT - 2)) in
    \(ControlVerb.available.flatMap { verb in
        verb.completions.enumerated().map { "  \(verb.name):\($0)) " + operand($1) + " ;;" }
      }.joined(separator: "\n"))
      *) _message 'no more arguments' ;;
      esac
    }

    _guardianctl() {
      _arguments -s -S \\
    \(specifications(ShellFlag.guardianctl))
        '1: :_guardianctl_commands' \\
        '*::operand:_guardianctl_operands'
    }

    case $service in
    guardian) _guardian "$@" ;;
    guardianctl) _guardianctl "$@" ;;
    esac

    """
  }

  private static func specifications(_ flags: [ShellFlag]) -> String {
    flags.map { flag in
      let help = "[" + bracketed(flag.help) + "]"
      let value = flag.argument.map { ":" + colons($0) + ":" + action(flag.completion) } ?? ""
      let long = "--" + flag.name + (flag.argument == nil ? "" : "=")
      let exclusion =
        flag.isList ? "*" : "(" + (flag.short.map { "-\($0) " } ?? "") + "--\(flag.name))"
      let rest = single(help + value)
      if let short = flag.short {
        let shortForm = "-\(short)" + (flag.argument == nil ? "" : "+")
        return "    \(single(exclusion)){\(shortForm),\(long)}\(rest) \\"
      }
      return "    \(single(exclusion + long))\(rest) \\"
    }.joined(separator: "\n")
  }

  private static func action(_ completion: Completion) -> String {
    switch completion {
    case .none: " "
    case .file: "_files"
    case .directory: "_directories"
    case .words(let words): "(" + words.joined(separator: " ") + ")"
    case .user: "_users"
    case .group: "_groups"
    case .variable: "_parameters -g \"*export*\" -S ="
    case .programs: "_guardian_programs"
    }
  }

  private static func operand(_ completion: Completion) -> String {
    switch completion {
    case .words(let words): "compadd -- " + words.joined(separator: " ")
    case .programs(let words) where !words.isEmpty:
      "_guardian_programs; compadd -- " + words.joined(separator: " ")
    default: action(completion)
    }
  }

  private static func colons(_ text: String) -> String { escaped(text, ":") }
  private static func bracketed(_ text: String) -> String { escaped(text, "[]:") }
  private static func escaped(_ text: String, _ special: String) -> String {
    text.reduce(into: "") { $0 += special.contains($1) ? "\\\($1)" : String($1) }
  }
}

// MARK: fish

enum FishCompletion {
  static func text() -> String {
    var text = """
      # fish completion for guardian and guardianctl; made by guardian --print completion-fish.

      function __guardian_before_command
          set -l words (commandline -opc)
          set -e words[1]
          not contains -- -- $words
      end

      # Whether the command is this one and so many of its operands are there.
      function __guardianctl_at
          set -l words (commandline -opc)
          set -e words[1]
          set -l operands
          while set -q words[1]
              switch $words[1]
                  case \(ShellFlag.guardianctl.filter { $0.argument != nil }.map {
                    ($0.short.map { "-\($0) " } ?? "") + "--" + $0.name
                  }.joined(separator: " "))
                      set -e words[1]
                  case '-*'
                  case '*'
                      set -a operands $words[1]
              end
              set -e words[1]
          end
          test (count $operands) -eq (math $argv[2] + 1); and test $operands[1] = $argv[1]
      end


      """
    for flag in ShellFlag.guardian {
      text += "complete -c guardian -n __guardian_before_command " + flagged(flag) + "\n"
    }
    text += "complete -c guardian -x -a '(__fish_complete_subcommand)'\n\n"
    text += "complete -c guardianctl -f\n"
    for flag in ShellFlag.guardianctl { text += "complete -c guardianctl " + flagged(flag) + "\n" }
    let names = ControlVerb.available.map(\.name).joined(separator: " ")
    for verb in ControlVerb.available {
      text += "complete -c guardianctl -n 'not __fish_seen_subcommand_from \(names)' "
      text += "-a \(verb.name) -d \(quote(verb.help))\n"
      for (place, completion) in verb.completions.enumerated() {
        guard let action = action(completion) else { continue }
        text += "complete -c guardianctl -n '__guardianctl_at \(verb.name) \(place)' \(action)\n"
      }
    }
    return text
  }

  private static func flagged(_ flag: ShellFlag) -> String {
    var words = ["-l \(flag.name)"]
    if let short = flag.short { words.append("-s \(short)") }
    if flag.argument != nil {
      words.append(flag.completion == .file ? "-r -F" : "-x")
      if let action = action(flag.completion) { words.append(action) }
    }
    words.append("-d " + quote(flag.help))
    return words.joined(separator: " ")
  }

  private static func action(_ completion: Completion) -> String? {
    switch completion {
    case .none, .file: nil
    case .directory: "-a '(__fish_complete_directories)'"
    case .words(let words): "-a " + quote(words.joined(separator: " "))
    case .user: "-a '(__fish_complete_users)'"
    case .group: "-a '(__fish_complete_groups)'"
    case .variable: "-a '(set -nx)='"
    case .programs(let words):
      "-a '(guardianctl completion-names 2>/dev/null)"
        + (words.isEmpty ? "" : " " + words.joined(separator: " ")) + "'"
    }
  }

  /// fish knows \\ and \' inside single quotes.
  private static func quote(_ text: String) -> String {
    "'" + text.reduce(into: "") { $0 += "\\'".contains($1) ? "\\\($1)" : String($1) } + "'"
  }
}
