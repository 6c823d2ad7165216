/// guardian's version: the one place that says it. The Makefile reads this line.
package let guardianVersion = "0.1.0"

/// The form in which a running guardian hands its program over to a new binary: one that prints
/// another one (`--print handover`) cannot take over.
package let guardianHandover = "guardian.handover/1"
