// What a newcomer does first.
import Foundation
import Testing

@Suite("The tour of `make run`")
struct TourTests {
  @Test
  func `the example server crashes, is reported and answers again, twice in a row from any folder`()
    throws
  {
    for folder in ["/", "/tmp"] {
      let tour = try run(
        [
          "env", "-C", folder, Place.root + "/Sources/Examples/run-crash-server", Place.release,
        ], seconds: 180)
      #expect(tour.status == 0, "\(tour.out)\(tour.err)")
      #expect(tour.out.contains("life 1"), "\(tour.out)")
      #expect(tour.out.contains("life 2"), "\(tour.out)")
      // The first line of report.txt: signal, function and place.
      #expect(tour.out.contains("SIGSEGV in "), "\(tour.out)")
      #expect(tour.out.contains("Shop.reprice(shelf:"), "\(tour.out)")
      #expect(tour.out.contains("Shop.swift:"), "\(tour.out)")
    }
  }
}
