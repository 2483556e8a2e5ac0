// Package chaos injects random faults into everything that a retry layer depends on, from a seed, and has the checker
// of package history look for broken promises. docs/evidence/chaos.md describes what is injected, what is checked and
// how to repeat a run.
//
// A run has a [system]: one broker, with proxies in front of it, and the faults that it may have. A client that is
// independent of redeliver writes loads to it. Consumers are separate processes: this test binary, started again.
// Faults are injected on parallel lanes, so that a broken connection, a frozen node and a killed consumer may coincide.
// At the end all faults are healed, and each message must reach its end.
package chaos
