// flags: -O -g -parse-as-library
// Methods in structs, classes, extensions and generics, optimised; crashes in its second thread
// while ten are alive.
import Glibc

struct Invoice {
  var pieces: Int

  @inline(never)
  func total(price: Int) -> Int {
    pieces * price  // mark: total
  }
}

final class Ledger<Value> {
  var values: [Value]
  init(_ values: [Value]) { self.values = values }

  @inline(never)
  func value(at index: Int) -> Value {
    values[index]  // mark: index
  }
}

extension Invoice {
  @inline(__always)
  func checked(_ table: [String: Int], _ key: String) -> Int {
    table[key]!  // mark: unwrap
  }

  @inline(never)
  func unwrapped(_ table: [String: Int], _ key: String) -> Int {
    checked(table, key) + pieces  // mark: unwrapped
  }

  @inline(never)
  static func refuse(_ reason: String) -> Never {
    fatalError("refused: \(reason)")  // mark: fatal
  }
}

@inline(never)
func crash(_ how: String) -> Int {
  switch how {
  case "overflow": Invoice(pieces: .max).total(price: how.utf8.count)  // mark: overflow
  case "index": Ledger([1, 2, 3]).value(at: how.utf8.count)
  case "nil": Invoice(pieces: 1).unwrapped(["a": 1], how)
  default: Invoice.refuse(how)
  }
}

nonisolated(unsafe) var everybody = pthread_barrier_t()
nonisolated(unsafe) var how = "overflow"

@main
enum Program {
  static func main() {
    if CommandLine.arguments.count > 1 { how = CommandLine.arguments[1] }
    pthread_barrier_init(&everybody, nil, 11)
    var threads = [pthread_t](repeating: 0, count: 10)
    for index in threads.indices {
      pthread_create(
        &threads[index], nil,
        { argument in
          pthread_barrier_wait(&everybody)
          if argument != nil { print(crash(how)) }
          while true { pause() }
        }, index == 0 ? UnsafeMutableRawPointer(bitPattern: 1) : nil)
    }
    pthread_barrier_wait(&everybody)
    while true { pause() }
  }
}
