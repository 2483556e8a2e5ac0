//go:build !linux

package brokers

func inMemory() string { return "" }
