// swift-tools-version: 6.2
// Folder order is data order: read the targets from top to bottom and you have
// read the life of a crash. Arrows point up this list, never in a circle.
import PackageDescription

let strict: [SwiftSetting] = [
  .strictMemorySafety(),
  .treatAllWarnings(as: .error),
]
let tested: [SwiftSetting] = [.treatAllWarnings(as: .error)]
let c: [CSetting] = [
  // GNU's additions in the sources only: a header that asks for them gives Swift a second view of
  // the C library's types, and a build fails now and then ("fd_set has different definitions").
  .define("_GNU_SOURCE"),
  .unsafeFlags(["-std=gnu17", "-Wall", "-Wextra", "-Werror"]),
]

// guardian stays small and starts at once with the Swift runtime inside it.
let staticRuntime: [LinkerSetting] = [.unsafeFlags(["-static-stdlib"])]
// FoundationEssentials for JSON, linked in; the linker must be told of what it needs itself.
let staticFoundation: [LinkerSetting] =
  staticRuntime + [
    .linkedLibrary("_FoundationCollections"), .linkedLibrary("_FoundationCShims"),
    .linkedLibrary("swiftSynchronization"),
  ]
// The capture helper stands between a crash and the release of the dying
// program: no dynamic loader at all.
let staticExecutable: [LinkerSetting] = [.unsafeFlags(["-static-executable"])]

let package = Package(
  name: "guardian",
  products: [
    .library(name: "Guardian", targets: ["Guardian"]),
    .executable(name: "guardian", targets: ["guardian"]),
    .executable(name: "guardianctl", targets: ["guardianctl"]),
    .executable(name: "guardian-capture", targets: ["guardian-capture"]),
    .executable(name: "guardian-sweep", targets: ["guardian-sweep"]),
    .executable(name: "guardian-reporter", targets: ["guardian-reporter"]),
  ],
  targets: [
    // In the program.
    .target(
      name: "CrashHandler", exclude: ["README.md", "guardian.pc.in"], cSettings: c),
    .target(
      name: "Guardian", dependencies: ["CrashHandler"], swiftSettings: strict),

    // Pure values: import nothing of ours.
    .target(name: "Policy", exclude: ["README.md"], swiftSettings: strict),
    .target(name: "Ring", exclude: ["README.md"], swiftSettings: strict),

    // System libraries and shims.
    .target(name: "CSpawn", cSettings: c),
    .target(name: "CLinux", cSettings: c),
    .target(name: "CToml", cxxSettings: [.unsafeFlags(["-Wall", "-Wextra", "-Werror"])]),
    .target(
      name: "CDemangle", cSettings: c, linkerSettings: [.linkedLibrary("iberty")]),
    .systemLibrary(name: "CSystemd", pkgConfig: "libsystemd"),
    .systemLibrary(name: "CDwarf", pkgConfig: "libdw"),
    .systemLibrary(name: "CSeccomp", pkgConfig: "libseccomp"),

    .target(name: "Kernel", dependencies: ["CLinux"], swiftSettings: strict),
    .target(
      name: "Settings", dependencies: ["CLinux", "CToml", "Policy"], exclude: ["README.md"],
      swiftSettings: strict),
    .target(
      name: "Reports", dependencies: ["Kernel", "Policy", "Ring"], exclude: ["README.md"],
      swiftSettings: strict),
    // What guardian and guardianctl say to each other.
    .target(
      name: "Control", dependencies: ["CLinux", "Kernel", "Policy", "Reports"],
      swiftSettings: strict),
    .target(
      name: "Supervision",
      dependencies: [
        "CLinux", "Control", "CSpawn", "CSystemd", "Kernel", "Policy", "Reports", "Ring",
        "Settings",
      ],
      exclude: ["README.md"], swiftSettings: strict),
    .target(
      name: "Capture", dependencies: ["CLinux", "Kernel", "Reports", "Ring"],
      exclude: ["README.md"], swiftSettings: strict),
    .target(
      name: "Symbolication", dependencies: ["CDemangle", "CDwarf", "Kernel", "Reports"],
      exclude: ["README.md"], swiftSettings: strict),

    .executableTarget(
      name: "guardian",
      dependencies: ["Kernel", "Policy", "Reports", "Settings", "Supervision"],
      swiftSettings: strict, linkerSettings: staticRuntime),
    .executableTarget(
      name: "guardian-capture", dependencies: ["Capture", "Kernel"],
      swiftSettings: strict, linkerSettings: staticExecutable),
    .executableTarget(
      name: "guardian-sweep", dependencies: ["Kernel"],
      swiftSettings: strict, linkerSettings: staticExecutable),
    .executableTarget(
      name: "guardian-reporter",
      dependencies: ["CSeccomp", "Kernel", "Policy", "Reports", "Ring", "Symbolication"],
      exclude: ["README.md"], swiftSettings: strict, linkerSettings: staticFoundation),
    .executableTarget(
      name: "guardianctl",
      dependencies: ["CLinux", "Control", "Kernel", "Policy", "Reports", "Settings"],
      swiftSettings: strict, linkerSettings: staticFoundation),

    // Programs that show guardian at work.
    .executableTarget(
      name: "crash-server", path: "Sources/Examples/crash-server", swiftSettings: tested),

    .testTarget(name: "PolicyTests", dependencies: ["Policy"], swiftSettings: tested),
    .testTarget(
      name: "RingTests", dependencies: ["CrashHandler", "Ring"], swiftSettings: tested),
    .testTarget(name: "KernelTests", dependencies: ["Kernel"], swiftSettings: tested),
    .testTarget(
      name: "CrashHandlerTests", dependencies: ["Guardian"],
      swiftSettings: tested),
    .testTarget(
      name: "SettingsTests", dependencies: ["Policy", "Settings"], swiftSettings: tested),
    .testTarget(
      name: "ReportsTests", dependencies: ["Kernel", "Policy", "Reports", "Ring"],
      exclude: ["Corpus"],
      swiftSettings: tested),
    .testTarget(
      name: "SupervisionTests",
      dependencies: [
        "CSpawn", "Control", "Kernel", "Policy", "Reports", "Ring", "Settings", "Supervision",
      ],
      swiftSettings: tested),
    .testTarget(
      name: "CaptureTests", dependencies: ["Capture", "Kernel", "Reports", "Ring"],
      swiftSettings: tested),
    .testTarget(
      name: "SymbolicationTests", dependencies: ["Kernel", "Reports", "Symbolication"],
      swiftSettings: tested),
    // Knows guardian from outside only, as its users do.
    .testTarget(name: "EndToEndTests", swiftSettings: tested),
  ],
  swiftLanguageModes: [.v6],
  cxxLanguageStandard: .cxx17
)
