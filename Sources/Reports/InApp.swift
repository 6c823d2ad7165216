// Which frames are the program's own: what a reader looks at first and what a fingerprint is
// made of. Pure.

package enum InApp {
  private static let libraries = [
    "libc.", "libc-", "libpthread", "libm.", "libm-", "libdl.", "librt.", "libresolv", "ld-linux",
    "ld-musl", "ld.so", "ld-2", "libstdc++", "libgcc_s", "libc++", "libunwind", "libswift",
    "libFoundation", "lib_Foundation", "libdispatch", "libBlocksRuntime", "libXCTest",
    "libguardian-handler", "linux-vdso", "[vdso]", "[vsyscall]", "libasan", "libtsan", "libubsan",
    "libjvm", "libjli", "libpython",
  ]

  /// Runtimes linked into the program itself, by their functions' beginnings (demangled).
  private static let functions = [
    "std::", "core::", "alloc::", "<std::", "<core::", "<alloc::", "rust_panic",
    "rust_begin_unwind", "__rust_", "_rust_", "__rustc", "rustc_", "__cxa_", "__gnu_cxx::",
    "__cxxabiv1::", "_Unwind_", "__gxx_personality",
    "Swift runtime failure", "swift::", "swift_", "_swift_", "Swift._", "_assertionFailure",
    "Swift.fatalError", "Swift.precondition", "Swift.assert",
    "__libc_start", "_start", "__GI_", "__pthread_kill", "pthread_kill", "raise", "abort",
    "__assert_fail", "__restore_rt", "__fortify_fail", "__stack_chk_fail", "start_thread",
    "clone", "clone3", "__clone", "runtime.", "guardian_",
  ]
  /// Of these the beginning may be a program's own name too: only the whole name counts.
  private static let wholeNames: Set<String> = [
    "raise", "abort", "clone", "clone3", "_start", "start_thread",
  ]

  /// Libraries that are compiled into the program as source: headers, Rust's own crates and
  /// those of others.
  private static let files = [
    "/rustc/", "library/core/", "library/std/", "library/alloc/", "/usr/include/",
    "/usr/lib/gcc/", "/usr/lib/llvm",
  ]

  package static func isInApp(modulePath: String?, function: String?, file: String? = nil) -> Bool {
    if let file, files.contains(where: file.hasPrefix) || file.holds("/.cargo/registry/") {
      return false
    }
    if let modulePath {
      let name = SafeText.lastComponent(modulePath)
      if libraries.contains(where: { name.hasPrefix($0) }) { return false }
    }
    guard let function else { return true }
    // Rust: `<usize as core::slice::index::SliceIndex<[T]>>::index`.
    if function.hasPrefix("<"), let mark = function.find(" as ") {
      let implemented = function[mark.upperBound...]
      if ["core::", "alloc::", "std::"].contains(where: implemented.hasPrefix),
        !function[..<mark.lowerBound].holds("::")
      {
        return false
      }
    }
    return !functions.contains { part in
      wholeNames.contains(part)
        ? function == part || function.hasPrefix(part + "(") : function.hasPrefix(part)
    }
  }
}
