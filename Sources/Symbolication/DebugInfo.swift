// The DWARF of one module: file, line and inline frames of an address. elfutils' own look-ups go
// through .debug_aranges, which clang and swiftc do not write, and find no Swift function, as
// those hang below module and type entries; so units are indexed by their ranges and their entries
// walked here. Everything is lazy: a unit that no frame lies in costs one entry of the index.
import CDwarf

final class DebugInfo {
  /// One function at an address.
  struct Scope {
    let name: Name?
    let position: Position
    let inlined: Bool
    /// Of a function that is not inlined: its first instruction.
    let start: UInt64?
  }

  enum Name {
    /// As the linker sees it.
    case linkage(String)
    /// As the source has it, with the names around it.
    case source(String)
  }

  struct Position {
    var file: String?
    var line: Int?
    var column: Int?
  }

  private struct UnitRange {
    let start: UInt64
    let end: UInt64
    let unit: Int
  }

  private struct Function {
    let start: UInt64
    let end: UInt64
    let die: Die
  }

  private final class Unit {
    let die: Die
    lazy var body = die.split ?? die
    var functions: [Function]?
    init(_ die: Die) { self.die = die }
  }

  private let bias: UInt64
  private var ranges: [UnitRange] = []
  private var units: [Unit] = []
  /// Units that do not say where their code is.
  private var rangeless: [Unit] = []
  /// Entries looked at so far.
  private var visited = 0

  /// Chrome has 40,000 units; one that is linked with LTO has some ten million entries in one.
  private static let mostUnits = 200_000
  private static let mostVisited = 40_000_000
  private static let mostRangeless = 64
  private static let mostRangesOfOne = 100_000
  private static let mostDepth = 128
  private static let mostInlined = 64

  init(module: OpaquePointer?) {
    guard let module = unsafe module else {
      bias = 0
      return
    }
    let found = unsafe compilationUnits(of: module, most: DebugInfo.mostUnits)
    bias = found.bias
    for (index, die) in found.units.enumerated() {
      units.append(Unit(die))
      let pieces = die.ranges(most: DebugInfo.mostRangesOfOne)
      if pieces.isEmpty { rangeless.append(units[index]) }
      for piece in pieces {
        ranges.append(UnitRange(start: piece.start, end: piece.end, unit: index))
      }
    }
    ranges.sort { $0.start < $1.start }
  }

  /// The functions at an address, the innermost first; empty if nothing is known.
  func scopes(at address: UInt64) -> [Scope] {
    let pc = address &- bias
    let end = ranges.firstSorted { $0.start > pc }
    // Ranges of two units overlap only where the linker folded equal code.
    let near = ranges[max(0, end - 4)..<end].reversed().filter { pc < $0.end }.map {
      units[$0.unit]
    }
    for unit in near {
      if let function = function(pc, in: unit) { return scopes(pc, unit, function) }
    }
    if let position = near.first.flatMap({ position(pc, in: $0) }) {
      return [Scope(name: nil, position: position, inlined: false, start: nil)]
    }
    for unit in rangeless.prefix(DebugInfo.mostRangeless) {
      if let function = function(pc, in: unit) { return scopes(pc, unit, function) }
    }
    return []
  }

  private func scopes(_ pc: UInt64, _ unit: Unit, _ function: Function) -> [Scope] {
    // From the function inwards: what is called, and from where.
    var calls: [Die] = []
    collectInlined(pc, in: function.die, &calls, depth: 0)
    let innermost = position(pc, in: unit) ?? Position()
    var scopes: [Scope] = []
    for index in calls.indices.reversed() {
      scopes.append(
        Scope(
          name: name(of: calls[index]),
          position: scopes.isEmpty ? innermost : site(of: calls[index + 1], in: unit),
          inlined: true, start: nil))
    }
    scopes.append(
      Scope(
        name: name(of: function.die),
        position: calls.first.map { site(of: $0, in: unit) } ?? innermost, inlined: false,
        start: function.start &+ bias))
    return scopes
  }

  // MARK: Functions

  private func function(_ pc: UInt64, in unit: Unit) -> Function? {
    if unit.functions == nil {
      var found: [Function] = []
      collectFunctions(unit.body, &found, depth: 0)
      found.sort { ($0.start, $1.end) < ($1.start, $0.end) }
      unit.functions = found
    }
    let functions = unit.functions!
    let end = functions.firstSorted { $0.start > pc }
    return functions[max(0, end - 8)..<end].last { pc < $0.end }
  }

  /// Until `visit` returns false.
  private func forEachChild(of parent: Die, _ visit: (Die, Int) -> Bool) {
    var next = parent.firstChild
    while let child = next, visited < DebugInfo.mostVisited {
      visited += 1
      guard visit(child, child.tag) else { return }
      next = child.sibling
      // An entry that points back would be a circle.
      if let found = next, found.offset <= child.offset { return }
    }
  }

  private func collectFunctions(_ parent: Die, _ found: inout [Function], depth: Int) {
    guard depth < DebugInfo.mostDepth else { return }
    forEachChild(of: parent) { die, tag in
      switch tag {
      case Int(DW_TAG_subprogram):
        for range in die.ranges(most: DebugInfo.mostRangesOfOne) {
          found.append(Function(start: range.start, end: range.end, die: die))
        }
      case Int(DW_TAG_namespace), Int(DW_TAG_module), Int(DW_TAG_structure_type),
        Int(DW_TAG_class_type), Int(DW_TAG_union_type), Int(DW_TAG_enumeration_type),
        Int(DW_TAG_interface_type), Int(DW_TAG_variant_part), Int(DW_TAG_variant):
        collectFunctions(die, &found, depth: depth + 1)
      default: break
      }
      return true
    }
  }

  /// Appends, from the outside inwards, the calls within `parent` that were inlined at `pc`.
  private func collectInlined(_ pc: UInt64, in parent: Die, _ calls: inout [Die], depth: Int) {
    guard depth < DebugInfo.mostDepth, calls.count < DebugInfo.mostInlined else { return }
    forEachChild(of: parent) { die, tag in
      switch tag {
      case Int(DW_TAG_inlined_subroutine):
        guard die.contains(pc) else { return true }
        calls.append(die)
        collectInlined(pc, in: die, &calls, depth: depth + 1)
        return false
      case Int(DW_TAG_lexical_block), Int(DW_TAG_try_block), Int(DW_TAG_catch_block),
        Int(DW_TAG_with_stmt):
        let placed = die.has(Int(DW_AT_ranges)) || die.has(Int(DW_AT_low_pc))
        if placed, !die.contains(pc) { return true }
        let before = calls.count
        collectInlined(pc, in: die, &calls, depth: depth + 1)
        return calls.count == before
      default: return true
      }
    }
  }

  // MARK: Names

  private func name(of die: Die) -> Name? {
    if let name = die.inheritedText(Int(DW_AT_linkage_name))
      ?? die.inheritedText(Int(DW_AT_MIPS_linkage_name))
    {
      return .linkage(name)
    }
    return die.inheritedText(Int(DW_AT_name)).map { .source(qualified($0, die)) }
  }

  /// gcc leaves the linkage name out for what no other unit can see: the names around the function
  /// say which of a thousand `operator()` it is.
  private func qualified(_ name: String, _ instance: Die) -> String {
    var die = instance
    for _ in 0..<4 {
      guard
        let origin = die.reference(Int(DW_AT_abstract_origin))
          ?? die.reference(Int(DW_AT_specification))
      else { break }
      die = origin
    }
    guard let unit = die.unit, let language = unit.number(Int(DW_AT_language)),
      [DW_LANG_C_plus_plus, DW_LANG_C_plus_plus_03, DW_LANG_C_plus_plus_11, DW_LANG_C_plus_plus_14]
        .contains(where: { Int($0) == language }) || language == DebugInfo.cxx17
    else { return name }
    var names: [String] = []
    for around in enclosing(die, unit) {
      switch around.tag {
      case Int(DW_TAG_namespace):
        names.append(around.inheritedText(Int(DW_AT_name)) ?? "(anonymous namespace)")
      case Int(DW_TAG_structure_type), Int(DW_TAG_class_type), Int(DW_TAG_union_type):
        let unnamed = name == "operator()" ? "{lambda}" : "(anonymous type)"
        names.append(around.inheritedText(Int(DW_AT_name)) ?? unnamed)
      case Int(DW_TAG_subprogram):
        if let name = around.inheritedText(Int(DW_AT_name)) { names.append(name + "()") }
      default: break
      }
    }
    return (names + [name]).joined(separator: "::")
  }

  /// The entries that hold `die`, from the outside inwards: entries lie in the order of a walk
  /// through the tree, so each holder is the last of its siblings that begins before `die`.
  private func enclosing(_ die: Die, _ unit: Die) -> [Die] {
    let offset = die.offset
    var found: [Die] = []
    var holder = unit
    while found.count < DebugInfo.mostDepth {
      var next: Die?
      forEachChild(of: holder) { child, _ in
        if child.offset > offset { return false }
        next = child
        return true
      }
      guard let next, next.offset != offset else { break }
      found.append(next)
      holder = next
    }
    return found
  }

  /// DW_LANG_C_plus_plus_17 of DWARF 6, which compilers already use.
  private static let cxx17 = 0x2b

  // MARK: Places

  private func position(_ pc: UInt64, in unit: Unit) -> Position? {
    unit.die.line(at: pc).map {
      // Line 0 and swiftc's "<compiler-generated>" are no places.
      guard $0.line > 0 else { return Position() }
      return Position(
        file: $0.file, line: $0.line, column: $0.column > 0 ? $0.column : nil)
    }
  }

  /// Where an inlined function was called.
  private func site(of call: Die, in unit: Unit) -> Position {
    guard let line = call.number(Int(DW_AT_call_line)), line > 0 else { return Position() }
    return Position(
      file: call.number(Int(DW_AT_call_file)).flatMap { unit.die.file($0) }, line: line,
      column: call.number(Int(DW_AT_call_column)).flatMap { $0 > 0 ? $0 : nil })
  }
}
