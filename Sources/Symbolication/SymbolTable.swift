// The ELF symbols of one module, sorted once: libdwfl's own look-up walks the whole table for
// each address.
import CDwarf

@safe struct SymbolTable {
  private struct Entry {
    let start: UInt64
    let size: UInt64
    let index: Int32
    /// Of several names at one address the highest is the one to show.
    let rank: UInt8
  }

  struct Match {
    let name: String
    let start: UInt64
  }

  private let module: OpaquePointer?
  private var entries: [Entry] = []

  /// More than the largest browsers have.
  private static let mostSymbols: Int32 = 8_000_000
  /// How far back a symbol that holds the address may begin before the nearest one.
  private static let mostNested = 32

  init(module: OpaquePointer?, range: Range<UInt64>) {
    unsafe self.module = unsafe module
    guard let module = unsafe module else { return }
    let count = min(unsafe dwfl_module_getsymtab(module), SymbolTable.mostSymbols)
    guard count > 1 else { return }
    entries.reserveCapacity(Int(count))
    for index in 1..<count {
      var symbol = GElf_Sym()
      var address: GElf_Addr = 0
      var section: GElf_Word = 0
      guard
        unsafe dwfl_module_getsym_info(module, index, &symbol, &address, &section, nil, nil) != nil,
        section != 0, section != GElf_Word.max, range.contains(address)
      else { continue }
      let kind = symbol.st_info & 15
      // Functions, indirect functions, and what assembler code left without a type.
      guard kind == 2 || kind == 10 || (kind == 0 && section < 0xff00) else { continue }
      let binding = symbol.st_info >> 4
      let bindingRank: UInt8 = binding == 1 ? 2 : binding == 2 ? 1 : 0
      entries.append(
        Entry(
          start: address, size: symbol.st_size, index: index,
          rank: bindingRank + (kind == 0 ? 0 : 4)))
    }
    entries.sort { ($0.start, $0.rank) < ($1.start, $1.rank) }
  }

  /// The function that holds an address.
  func function(at address: UInt64) -> Match? {
    let end = entries.firstSorted { $0.start > address }
    var nearest: Entry?
    for entry in entries[max(0, end - SymbolTable.mostNested)..<end].reversed() {
      if address - entry.start < entry.size { return match(entry) }
      if nearest == nil { nearest = entry }
    }
    // A label without a size reaches up to the next symbol.
    guard let nearest, nearest.size == 0 else { return nil }
    return match(nearest)
  }

  private func match(_ entry: Entry) -> Match? {
    var symbol = GElf_Sym()
    var address: GElf_Addr = 0
    guard let module = unsafe module,
      let name = unsafe dwfl_module_getsym_info(
        module, entry.index, &symbol, &address, nil, nil, nil),
      let text = unsafe HostileText.copy(name), !text.isEmpty
    else { return nil }
    return Match(name: text, start: entry.start)
  }
}
