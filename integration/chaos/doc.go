// Package chaos breaks what a retry layer depends on, at random and from a seed, and has the checker of package history
// look for a promise that did not hold. docs/evidence/chaos.md tells what is injected, what is checked and how to repeat a run.
//
// A run has a [stage]: one broker, with proxies between it and everybody, and what can go wrong with it. Loads are
// written to it by a client that knows nothing of redeliver. Consumers are processes of their own: this test binary, started again.
// The faults come on lanes, so that a broken connection meets a frozen node and a killed consumer. In the end all is
// healed, and each message must come to its end.
package chaos
