// report.json as a reader outside of guardian sees it: written from the schema, not from guardian's
// own types, so that a key that changes its name is noticed.

struct Report: Decodable, Sendable {
  enum Kind: String, Decodable, Sendable {
    case crash, hang, oom, killed, exit
    case execFailed = "exec-failed"
  }
  struct Program: Decodable, Sendable {
    enum Role: String, Decodable, Sendable { case main, descendant }
    let name: String
    let executable: String?
    let pid: Int32
    let uid: UInt32?
    let life: Int
    let role: Role
  }
  struct Ending: Decodable, Sendable {
    struct Signal: Decodable, Sendable {
      let number: Int32
      let name: String
      let codeName: String?
      let address: String?
      let senderPID: Int32?
    }
    let signal: Signal?
    let exitStatus: Int32?
  }
  struct Frame: Decodable, Sendable {
    enum Trust: String, Decodable, Sendable {
      case context, cfi, scan
      case framePointer = "frame-pointer"
    }
    let address: String
    let function: String?
    let module: String?
    let file: String?
    let line: Int?
    let inlined: Bool
    let trust: Trust
  }
  struct Thread: Decodable, Sendable {
    let id: Int32
    let name: String?
    let crashed: Bool
    let frames: [Frame]
  }
  struct Module: Decodable, Sendable {
    let path: String
    let buildID: String?
  }
  struct Policy: Decodable, Sendable {
    let verdict: String
    let failures: Int
    let reason: String
  }
  struct Capture: Decodable, Sendable {
    enum Threads: String, Decodable, Sendable { case all, crashing, none }
    let handler: String
    let threads: Threads
    let milliseconds: Double?
    let defects: [String]
  }

  let schema: String
  let id: String
  let kind: Kind
  let program: Program
  let ending: Ending
  let threads: [Thread]
  let modules: [Module]
  let policy: Policy?
  let capture: Capture
}
