/// guardian's version: the one place that says it. The Makefile reads this line.
package let guardianVersion = "0.1.0"
