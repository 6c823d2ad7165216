// Users and groups by name or number, as the system's account database has them
// (nsswitch.conf(5)). Asked before anything is started: between fork and exec nobody may.
import CLinux
import Glibc

/// Whom the program runs as; nil: as guardian does.
package struct Account: Hashable, Sendable {
  package var uid: UInt32?
  package var gid: UInt32?
  /// Supplementary groups, the primary one among them.
  package var groups: [UInt32]?
  /// nil: no user was asked for, or the number has no account.
  package var login: Login?

  package struct Login: Hashable, Sendable {
    package let name: String
    package let home: String
    package let shell: String
  }
}

enum Accounts {
  /// Digits are a number, as systemd has it: a name of digits alone would be ambiguous.
  private static func number(_ text: String, _ what: String) throws(BadValue) -> UInt32? {
    guard text.utf8.allSatisfy({ $0 >= 0x30 && $0 <= 0x39 }) else { return nil }
    // The highest number means "leave it as it is" to the kernel.
    guard let number = UInt32(text), number != .max else {
      throw BadValue("\(quoted(text)) is out of range for a \(what): 0 to \(UInt32.max - 1)")
    }
    return number
  }

  static func user(_ text: String) throws(BadValue) -> Account {
    let number = try number(text, "user")
    guard let entry = try passwd(text, number) else {
      guard let number else { throw BadValue("there is no user \(quoted(text))") }
      // Its groups are nobody's guess: group 0 would be root's.
      return Account(uid: number, groups: [])
    }
    return Account(
      uid: entry.uid, gid: entry.gid, groups: try groups(of: entry.login.name, entry.gid),
      login: entry.login)
  }

  static func group(_ text: String) throws(BadValue) -> UInt32 {
    if let number = try number(text, "group") { return number }
    var record = unsafe Glibc.group()
    var found: UInt32?
    let error = unsafe withRoom { buffer, size in
      var result: UnsafeMutablePointer<Glibc.group>? = nil
      let error = unsafe getgrnam_r(text, &record, buffer, size, &result)
      if unsafe result != nil { found = unsafe record.gr_gid }
      return error
    }
    if let found { return found }
    try check(error, "group", text)
    throw BadValue("there is no group \(quoted(text))")
  }

  private static func passwd(
    _ text: String, _ number: UInt32?
  ) throws(BadValue) -> (uid: UInt32, gid: UInt32, login: Account.Login)? {
    var record = unsafe Glibc.passwd()
    var found: (uid: UInt32, gid: UInt32, login: Account.Login)?
    let error = unsafe withRoom { buffer, size in
      var result: UnsafeMutablePointer<Glibc.passwd>? = nil
      let error: Int32
      if let number {
        error = unsafe getpwuid_r(number, &record, buffer, size, &result)
      } else {
        error = unsafe getpwnam_r(text, &record, buffer, size, &result)
      }
      if unsafe result != nil {
        func text(_ field: UnsafeMutablePointer<CChar>?) -> String {
          guard let field = unsafe field else { return "" }
          return unsafe String(cString: field)
        }
        found = unsafe (
          record.pw_uid, record.pw_gid,
          Account.Login(
            name: text(record.pw_name), home: text(record.pw_dir), shell: text(record.pw_shell))
        )
      }
      return error
    }
    if found == nil { try check(error, "user", text) }
    return found
  }

  private static func groups(of name: String, _ gid: UInt32) throws(BadValue) -> [UInt32] {
    // The kernel's own limit, NGROUPS_MAX.
    var capacity: Int32 = 64
    while capacity <= 65536 {
      var groups = [gid_t](repeating: 0, count: Int(capacity))
      var count = capacity
      if unsafe getgrouplist(name, gid, &groups, &count) >= 0 {
        return Array(groups.prefix(Int(count)))
      }
      capacity = max(count, capacity * 2)
    }
    throw BadValue("the user \(quoted(name)) is in more groups than Linux allows")
  }

  /// Calls with more room until it is enough (ERANGE); the last errno.
  private static func withRoom(
    _ call: (UnsafeMutablePointer<CChar>, Int) -> Int32
  ) -> Int32 {
    var size = 4096
    while true {
      let error = unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: size) {
        unsafe call($0.baseAddress!, size)
      }
      if error != ERANGE || size >= 1 << 20 { return error }
      size *= 4
    }
  }

  /// Not found is no error, whichever way the database says it (getpwnam(3)).
  private static func check(_ error: Int32, _ what: String, _ text: String) throws(BadValue) {
    if [0, ENOENT, ESRCH, EBADF, EPERM].contains(error) { return }
    let cause = unsafe String(cString: strerror(error))
    throw BadValue("cannot look up the \(what) \(quoted(text)): \(cause)")
  }
}
