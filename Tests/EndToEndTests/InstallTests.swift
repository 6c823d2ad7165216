// What is installed, used as a stranger would who has read the README.
import Foundation
import Testing

@Suite("An installed guardian")
struct InstallTests {
  @Test
  func `builds the README's C program by pkg-config, which runs with and without guardian`() throws
  {
    let stage = try Folder()
    let install = try run([
      "make", "-f", Place.root + "/Makefile", "install", "DESTDIR=\(stage.path)", "PREFIX=/usr",
    ])
    #expect(install.status == 0, "\(install.err)")
    let prefix = stage.path + "/usr"

    let blocks = text(Place.root + "/README.md").components(separatedBy: "```c\n").dropFirst()
    let block = try #require(blocks.first?.components(separatedBy: "```").first)
    let source = try stage.write("orders.c", block)
    // As the README has it, but for the place: the prefix is inside the staging folder here.
    let program = stage.path + "/orders"
    let build = try run(
      [
        "sh", "-c",
        "cc -Wall -Wextra -Werror -o \(program) \(source) "
          + "$(pkg-config --define-variable=prefix=\(prefix) --cflags --libs guardian)",
      ], environment: ["PKG_CONFIG_PATH": prefix + "/lib/pkgconfig"])
    #expect(build.status == 0, "\(build.err)")
    let asCxx = try run([
      "sh", "-c", "g++ -Wall -Wextra -Werror -x c++ -fsyntax-only -I\(prefix)/include \(source)",
    ])
    #expect(asCxx.status == 0, "\(asCxx.err)")

    let alone = try run([program])
    #expect(alone.status == 128 + SIGABRT, "\(alone.err)")

    let guarded = try run([
      prefix + "/bin/guardian", "--max-crashes", "0", "--state-directory", stage.path + "/state",
      "--runtime-directory", stage.path + "/run", "--", program,
    ])
    #expect(guarded.status == 128 + SIGABRT, "\(guarded.err)")
    let shown = try run([
      prefix + "/bin/guardianctl", "--state-directory", stage.path + "/state", "show", "latest",
    ])
    #expect(shown.out.contains("info     orders  order 4711 accepted"), "\(shown.out)\(shown.err)")
    #expect(shown.out.contains("warning  orders  card of customer 7 declined"))
    #expect(shown.out.contains("tenant=blue"))
  }
}
