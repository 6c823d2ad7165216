// The programs themselves: what they print, with which status, and that nothing is started.
import Glibc
import Settings
import Testing

private let guardian = root + "/.build/release/guardian"

@Suite struct `guardian's own words` {
  @Test func `help, usage and version go to standard output with status 0`() {
    for flag in ["--help", "--usage", "--version"] {
      let ran = run([guardian, flag])
      #expect(ran.status == 0)
      #expect(ran.error == "")
      #expect(ran.output.contains("guardian"))
    }
    #expect(run([guardian, "-V"]).output == "guardian \(guardianVersion)\n")
  }

  @Test func `a mistake goes to standard error, in one line, and nothing is started`() {
    let folder = Folder()
    let touched = folder.path + "/started"
    let file = folder.file("c.toml", "restart = 'never'\n")
    for (words, status, line) in [
      (["--restart=x"], Int32(64), "guardian: option '--restart': 'x' is not one of no, "),
      (
        ["--config", file], 78, "guardian: \(file):1:11: key 'restart': 'never' is not one of no, "
      ),
    ] {
      let ran = run([guardian] + words + ["--", "/usr/bin/touch", touched])
      #expect(ran.status == status)
      #expect(ran.output == "")
      #expect(ran.error.hasPrefix(line) && ran.error.hasSuffix("; nothing was started\n"))
      #expect(ran.error.split(separator: "\n").count == 1)
      #expect(access(touched, F_OK) != 0)
    }
  }

  @Test func `a check says that all is well and starts nothing`() {
    let folder = Folder()
    let touched = folder.path + "/started"
    let file = folder.file("c.toml", "command = ['/usr/bin/touch', '\(touched)']\n")
    let ran = run([guardian, "--check", "--config", file])
    #expect(ran.status == 0)
    #expect(
      ran.output == "guardian: the configuration of 'touch' is right; "
        + "it would start '/usr/bin/touch' '\(touched)'\n")
    #expect(ran.error == "")
    #expect(access(touched, F_OK) != 0)
  }

  @Test func `a check finds what would not start`() {
    let folder = Folder()
    let plain = folder.file("plain", "#!/bin/sh\n")
    for (words, fault) in [
      (["--", "/nonexistent/x"], "'/nonexistent/x' cannot be executed: No such file or directory"),
      (["--", plain], "'\(plain)' is not executable"),
      (["--", folder.path], "'\(folder.path)' is a folder"),
      (["--", "no-such-command"], "'no-such-command' is not in PATH"),
      (
        ["--working-directory", "/nonexistent", "--", "/bin/true"],
        "the working directory '/nonexistent': No such file or directory"
      ),
      (
        ["--working-directory", plain, "--", "/bin/true"],
        "the working directory '\(plain)' is no folder"
      ),
    ] {
      let ran = run([guardian, "--check"] + words)
      #expect(ran.status == 78)
      #expect(ran.output == "")
      #expect(ran.error == "guardian: the program would not start: \(fault)\n")
    }
    let fine = run([guardian, "--check", "--working-directory", "/usr/bin", "--", "./true"])
    #expect(fine.status == 0, "\(fine.error)")
    #expect(run([guardian, "--check", "--env", "PATH=/usr/bin", "--", "true"]).status == 0)
  }

  @Test func `keys below the table of variables are warned of`() {
    let folder = Folder()
    let file = folder.file("c.toml", "command = ['true']\n[env]\nA = 'b'\nrestart = 'always'\n")
    let ran = run([guardian, "--check", "-c", file])
    #expect(ran.status == 0)
    #expect(
      ran.error
        == "guardian: \(file):4:1: key 'restart' stands below [env]: it is a variable of the "
        + "program, and no option of guardian; options stand above the first [table]\n")
  }
}
