// flags: -O -g -parse-as-library
// Ten threads; the second one dies of a real fault, two inlined calls deep.
import Glibc

@inline(__always)
func storePrice(_ price: UnsafeMutablePointer<Int32>, _ value: Int32) {
  price.pointee = value  // top frame
}

@inline(__always)
func fillShelf(_ shelf: Int, _ value: Int32) {
  storePrice(UnsafeMutablePointer(bitPattern: shelf)!, value + 3)  // inlined caller
}

@inline(never)
func restock(_ shelf: Int) -> Int {
  fillShelf(shelf, Int32(truncatingIfNeeded: shelf))  // function
  return shelf &+ 1
}

nonisolated(unsafe) var allAlive = pthread_barrier_t()

@main
struct TenThreads {
  static func main() {
    pthread_barrier_init(&allAlive, nil, 10)
    for number in 2...10 {
      var thread = pthread_t()
      pthread_create(
        &thread, nil,
        { number in
          let number = Int(bitPattern: number)
          let comm = open("/proc/thread-self/comm", O_WRONLY)
          _ = "worker-\(number)".withCString { write(comm, $0, strlen($0)) }
          close(comm)
          pthread_barrier_wait(&allAlive)
          if number == 2 { exit(Int32(truncatingIfNeeded: restock(16))) }
          while true { pause() }
        }, UnsafeMutableRawPointer(bitPattern: number))
    }
    pthread_barrier_wait(&allAlive)
    while true { pause() }
  }
}
