/// How guardian leaves.
package enum Leave: Hashable, Sendable {
  case exit(Int32)
  /// Die of the same signal itself (`--exit-as-signal`).
  case signal(Signal)
}
