//go:build prove

package brokers

// Proving reports whether this is make prove, where tests do more than in make test.
const Proving = true
