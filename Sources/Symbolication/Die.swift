// libdw's debugging information entry as a value. All of libdw's pointers point into the module's
// debug information, which lives as long as the session: a Die must not outlive it.
import CDwarf

@safe struct Die {
  private var raw: Dwarf_Die

  init(_ raw: Dwarf_Die) { unsafe self.raw = unsafe raw }

  /// libdw's functions take a pointer that they do not write through.
  private func with<Result>(_ body: (UnsafeMutablePointer<Dwarf_Die>) -> Result) -> Result {
    var copy = unsafe raw
    return unsafe withUnsafeMutablePointer(to: &copy) { unsafe body($0) }
  }

  var tag: Int { unsafe with { unsafe Int(dwarf_tag($0)) } }
  var offset: UInt64 { unsafe with { unsafe dwarf_dieoffset($0) } }

  var firstChild: Die? {
    var child = unsafe Dwarf_Die()
    let result = unsafe with { unsafe dwarf_child($0, &child) }
    return result == 0 ? unsafe Die(child) : nil
  }

  var sibling: Die? {
    var next = unsafe Dwarf_Die()
    let result = unsafe with { unsafe dwarf_siblingof($0, &next) }
    return result == 0 ? unsafe Die(next) : nil
  }

  /// The unit's entry in a split debug file, if this is the skeleton of one.
  var split: Die? {
    var body = unsafe Dwarf_Die()
    guard let unit = unsafe raw.cu,
      unsafe dwarf_cu_info(unit, nil, nil, nil, &body, nil, nil, nil) == 0, unsafe body.addr != nil
    else { return nil }
    return unsafe Die(body)
  }

  func has(_ attribute: Int) -> Bool {
    unsafe with { unsafe dwarf_hasattr($0, UInt32(attribute)) != 0 }
  }

  /// A text of this entry or of the one that it is an instance of.
  func inheritedText(_ attribute: Int) -> String? {
    unsafe with {
      var found = unsafe Dwarf_Attribute()
      guard unsafe dwarf_attr_integrate($0, UInt32(attribute), &found) != nil else { return nil }
      return unsafe HostileText.copy(dwarf_formstring(&found)).flatMap { $0.isEmpty ? nil : $0 }
    }
  }

  /// The entry that another refers to: what it is an instance or the definition of.
  func reference(_ attribute: Int) -> Die? {
    unsafe with {
      var found = unsafe Dwarf_Attribute()
      var target = unsafe Dwarf_Die()
      guard unsafe dwarf_attr($0, UInt32(attribute), &found) != nil,
        unsafe dwarf_formref_die(&found, &target) != nil
      else { return nil }
      return unsafe Die(target)
    }
  }

  /// The entry of the unit that this one is in.
  var unit: Die? {
    unsafe with {
      var found = unsafe Dwarf_Die()
      guard unsafe dwarf_diecu($0, &found, nil, nil) != nil else { return nil }
      return unsafe Die(found)
    }
  }

  func number(_ attribute: Int) -> Int? {
    unsafe with {
      var found = unsafe Dwarf_Attribute()
      var value: Dwarf_Word = 0
      guard unsafe dwarf_attr($0, UInt32(attribute), &found) != nil,
        unsafe dwarf_formudata(&found, &value) == 0
      else { return nil }
      return Int(exactly: value)
    }
  }

  func contains(_ pc: UInt64) -> Bool { unsafe with { unsafe dwarf_haspc($0, pc) > 0 } }

  /// Where the entry's code lies; at most `most` pieces.
  func ranges(most: Int) -> [(start: UInt64, end: UInt64)] {
    unsafe with { die in
      var found: [(start: UInt64, end: UInt64)] = []
      var base: Dwarf_Addr = 0
      var start: Dwarf_Addr = 0
      var end: Dwarf_Addr = 0
      var offset = 0
      while found.count < most {
        offset = unsafe dwarf_ranges(die, offset, &base, &start, &end)
        guard offset > 0 else { break }
        // Code that the linker dropped starts at 0 or 1.
        if start < end, start > 1 { found.append((start, end)) }
      }
      return found
    }
  }

  /// Of a unit: file, line and column of an address; line 0 is code that the compiler made up.
  func line(at pc: UInt64) -> (file: String?, line: Int, column: Int)? {
    unsafe with {
      guard let line = unsafe dwarf_getsrc_die($0, pc) else { return nil }
      var number: Int32 = 0
      var column: Int32 = 0
      _ = unsafe dwarf_lineno(line, &number)
      _ = unsafe dwarf_linecol(line, &column)
      return (unsafe HostileText.copy(dwarf_linesrc(line, nil, nil)), Int(number), Int(column))
    }
  }

  /// Of a unit: an entry of its table of files.
  func file(_ index: Int) -> String? {
    unsafe with {
      var files: OpaquePointer?
      var count = 0
      // libdw keeps the table after the first call.
      guard unsafe dwarf_getsrcfiles($0, &files, &count) == 0, let files = unsafe files,
        index >= 0, index < count
      else { return nil }
      return unsafe HostileText.copy(dwarf_filesrc(files, index, nil, nil))
    }
  }
}

/// The units of a module's debug information, in order, without type and partial units; with the
/// distance from their addresses to those in memory.
func compilationUnits(of module: OpaquePointer, most: Int) -> (units: [Die], bias: UInt64) {
  var bias: Dwarf_Addr = 0
  var found: [Die] = []
  guard let dwarf = unsafe dwfl_module_getdwarf(module, &bias) else { return ([], 0) }
  var unit: OpaquePointer?
  while found.count < most {
    var next: OpaquePointer?
    var die = unsafe Dwarf_Die()
    var kind: UInt8 = 0
    guard unsafe dwarf_get_units(dwarf, unit, &next, nil, &kind, &die, nil) == 0 else { break }
    unsafe unit = unsafe next
    let wanted = kind == UInt8(DW_UT_compile) || kind == UInt8(DW_UT_skeleton)
    if wanted, unsafe dwarf_tag(&die) != Int32(DW_TAG_partial_unit) {
      found.append(unsafe Die(die))
    }
  }
  return (found, bias)
}
