// Package kit runs the conformance kit on a Kafka-compatible broker that somebody else uses, too. Command compatible runs
// it.
package kit
