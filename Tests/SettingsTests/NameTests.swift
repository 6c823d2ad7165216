// The program's name and its folders.
import Settings
import Testing

@Suite struct `the name of a program` {
  @Test(arguments: [
    (["./server"], "server"), (["/usr/sbin/nginx", "-g", "daemon off;"], "nginx"),
    (["python3", "/srv/app.py"], "app"),
    (["/usr/bin/python3.11", "-u", "-X", "dev", "a/b.py"], "b"),
    (["python3", "-m", "http.server", "80"], "http.server"),
    (["python3", "-c", "pass"], "python3"),
    (["python3"], "python3"), (["node", "--inspect", "-r", "dotenv", "dist/index.js"], "index"),
    (["perl", "-w", "x.pl"], "x"), (["ruby", "-I", "lib", "bin/web.rb"], "web"),
    (["sh", "-c", "exec server"], "sh"), (["sh", "-ec", "exec server"], "sh"),
    (["bash", "-x", "run.sh", "-c"], "run"), (["bash", "--", "run"], "run"),
    (["java", "-Xmx1g", "-cp", "a.jar:b.jar", "-jar", "app.jar", "x"], "app"),
    (["java", "-cp", "a.jar", "com.example.Main"], "Main"),
    (["java", "-m", "shop/com.example.Shop"], "Shop"), (["deno", "run", "-A", "api.ts"], "api"),
    (["env", "A=1", "B=2", "python3", "q.py"], "q"), (["env", "-i", "x"], "env"),
    (["/opt/my server"], "my_server"), (["/opt/.hidden"], "_hidden"), ([""], "program"),
    (["/"], "program"), (["naïve"], "na__ve"),
    ([String(repeating: "x", count: 100)], String(repeating: "x", count: 48)),
  ])
  func `follows from its command`(command: [String], name: String) throws {
    #expect(ProgramName.derived(from: command) == name)
    #expect(ProgramName.isValid(name))
    #expect(try configuration(command: ["--"] + command).name == name)
  }

  @Test(arguments: ["a", "api-2", "A_b.c", "9", String(repeating: "x", count: 48)])
  func `may be given`(name: String) throws {
    let named = try configuration(["--name", name])
    #expect(named.name == name)
    #expect(named.nameIsGiven)
  }

  @Test(arguments: [
    "", ".", "..", ".a", "-a", "a/b", "a b", "ä", "a\n", String(repeating: "x", count: 49),
  ])
  func `is refused`(name: String) {
    #expect(failure(["--name=\(name)"])?.status == 64)
  }

  @Test func `gets a number behind it when it is taken`() throws {
    var one = try configuration()
    one.number(2)
    #expect(one.name == "server-2")
    #expect(one.stateDirectory == "/home/u/.local/state/guardian/server-2")
    var long = try configuration(command: [String(repeating: "x", count: 60)])
    long.number(12)
    #expect(ProgramName.isValid(long.name) && long.name.hasSuffix("x-12"))
  }
}

@Suite struct `the folders` {
  @Test func `of root`() {
    #expect(
      Places(uid: 0, environment: ["HOME": "/root", "XDG_STATE_HOME": "/x"])
        == Places(state: "/var/lib/guardian", runtime: "/run/guardian"))
  }

  @Test func `of others`() {
    #expect(
      Places(uid: 7, environment: ["HOME": "/h/", "XDG_RUNTIME_DIR": "/run/user/7"])
        == Places(state: "/h/.local/state/guardian", runtime: "/run/user/7/guardian"))
    #expect(
      Places(uid: 7, environment: ["HOME": "/h", "XDG_STATE_HOME": "/s", "TMPDIR": "/t"])
        == Places(state: "/s/guardian", runtime: "/t/guardian-7/run"))
    #expect(
      Places(uid: 7, environment: ["XDG_STATE_HOME": "relative"])
        == Places(state: "/tmp/guardian-7/state", runtime: "/tmp/guardian-7/run"))
    // A home that cannot be made is as good as none.
    #expect(
      Places(uid: 7, environment: ["HOME": "/h"], canBeMade: { $0 != "/h/.local/state/guardian" })
        == Places(state: "/tmp/guardian-7/state", runtime: "/tmp/guardian-7/run"))
    #expect(!StartCheck.canBeMade("/dev/null/x"))
    #expect(StartCheck.canBeMade("/tmp/guardian-tests/never/made"))
  }

  @Test func `may be given`() throws {
    let given = try configuration(
      ["--state-directory=/s"], environment: ["GUARDIAN_RUNTIME_DIRECTORY": "/r"])
    #expect(given.stateDirectory == "/s")
    #expect(given.runtimeDirectory == "/r")
  }
}

@Suite struct `A name beside the unit's` {
  /// A copy of an example keeps the name that it was given there.
  @Test func `is remarked by --check, with both names`() throws {
    let folder = Folder()
    var given = try configuration(["-c", folder.file("shop.toml", "name = \"web\"\n")])
    #expect(given.remarks == [])
    given.configurationFile = "/etc/guardian/shop.toml"
    #expect(given.remarks.count == 1)
    #expect(given.remarks.first?.contains("'web'") == true)
    #expect(given.remarks.first?.contains("guardian@shop") == true)
    var derived = try configuration(["-c", folder.file("other.toml", "")])
    derived.configurationFile = "/etc/guardian/shop.toml"
    #expect(derived.remarks == [])
  }
}
