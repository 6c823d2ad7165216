// The few system calls of a command line.
import CLinux
import Glibc

/// A relative path is meant from the folder guardian was started in.
func absolutePath(_ path: String) throws(SettingsError) -> String {
  if path.hasPrefix("/") { return path }
  guard let current = unsafe getcwd(nil, 0) else {
    let cause = unsafe String(cString: strerror(errno))
    throw SettingsError(
      .commandLine, "cannot find the current folder for '\(path)': \(cause)")
  }
  defer { unsafe free(current) }
  return unsafe String(cString: current) + "/" + path
}

/// false: not all of it could be written.
@discardableResult
func write(_ text: String, to descriptor: Int32) -> Bool {
  var bytes = Array(text.utf8)[...]
  while !bytes.isEmpty {
    let count = unsafe bytes.withUnsafeBytes {
      unsafe CLinux.write(descriptor, $0.baseAddress, $0.count)
    }
    if count < 0 {
      if errno == EINTR { continue }
      return false
    }
    bytes = bytes.dropFirst(count)
  }
  return true
}
