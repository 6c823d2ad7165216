/// What `guardian-capture` tells guardian over its result socket: one SEQPACKET message of
/// `key=value` words, with the descriptors of replaced binaries beside it. guardian's own
/// helper wrote it, yet it is read as bounded text: an unknown word is ignored, a missing
/// one has its default.
package struct CaptureSummary: Hashable, Sendable {
  package static let maximumBytes = 16_384

  /// Threads seen in /proc and threads whose registers and stack are in the minicore.
  package var threadsSeen = 0
  package var threadsCaptured = 0
  /// From the first stop to the release, microseconds.
  package var heldMicroseconds: UInt64 = 0
  package var coreBytes: UInt64 = 0
  /// Thread id of the crashing thread in guardian's pid namespace; 0: not found.
  package var crashingThread: Int32 = 0
  /// Of the faulting code: hash of module path and offset; 0: unknown.
  package var signature: UInt64 = 0
  /// Paths of replaced binaries, in the order of the descriptors that came along.
  package var replacedModules: [String] = []
  package var defects: [String] = []
  package init() {}
}
