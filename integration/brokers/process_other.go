//go:build unix && !linux

package brokers

import "syscall"

// dieWithParent cannot be had here: a broker outlives a test process that is killed, and is ended by hand.
func dieWithParent(*syscall.SysProcAttr) {}
