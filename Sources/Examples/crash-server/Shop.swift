import Glibc

/// What the server sells, and the ways in which it breaks.
struct Shop {
  var prices = [120, 250, 999]

  /// Writes through an address that nothing is mapped at: SIGSEGV.
  func reprice(shelf: Int) {
    let shelves = UnsafeMutablePointer<Int>(bitPattern: 0x10)!
    shelves[shelf] = 1
  }

  /// Reads past the end of an array: Swift's own trap.
  func price(of article: Int) -> Int { prices[article] }

  /// Never comes to an end: the stack does.
  func count(_ boxes: Int) -> Int { boxes == -1 ? 0 : count(boxes + 1) + prices[boxes % 3] }
}

struct OutOfStock: Error { let article: Int }

func order(_ article: Int) throws -> Int {
  guard article < 3 else { throw OutOfStock(article: article) }
  return article
}

/// Status line and body of one request; some paths never return.
func answer(_ path: String) -> (String, String) {
  let shop = Shop()
  switch path {
  case "/":
    let life = getenv("GUARDIAN_LIFE").map { String(cString: $0) } ?? "unsupervised"
    return ("200 OK", "hello from process \(getpid()), life \(life)\n")
  case "/crash": shop.reprice(shelf: Int(getpid() & 7))
  case "/abort": abort()
  case "/trap": return ("200 OK", "\(shop.price(of: Int(getpid()) | 4))\n")
  case "/throw": return ("200 OK", "\(try! order(Int(getpid()) | 4))\n")
  case "/overflow": return ("200 OK", "\(shop.count(0))\n")
  default: break
  }
  return ("404 Not Found", "try /crash, /abort, /trap, /throw or /overflow\n")
}

/// A thread that waits, as most threads of a server do.
func keepStock() {
  while true { sleep(3600) }
}
