//go:build !linux

package sidecar

func first(string) int { return 1 }
