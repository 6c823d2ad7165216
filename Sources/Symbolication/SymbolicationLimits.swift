// Every limit of the target, with its reason. The core and the files it names are hostile:
// nothing here may be unbounded.

/// What one snapshot may cost.
package struct SymbolicationLimits: Sendable {
  /// Kept frames of one thread, inline frames not counted: half from the top, half from the
  /// bottom, as an endless recursion is explained by where it began and where it ended.
  package var framesPerThread = 512
  /// Steps of one thread. A stack of 8 MiB holds about half a million frames of 16 bytes.
  package var stepsPerThread = 524_288
  /// Threads that are unwound; further ones are counted in a defect.
  package var threads = 4_096
  /// Modules that are looked at.
  package var modules = 4_096
  /// Time from the call to the return, milliseconds: past it frames stay without names. The
  /// worker's own budget is larger.
  package var milliseconds: UInt64 = 20_000
  /// What compressed sections of all files take unpacked, by what their headers claim: two
  /// megabytes of a file can stand for gigabytes.
  package var unpackedBytes: UInt64 = 512 << 20
  package init() {}
}
