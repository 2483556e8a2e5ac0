//go:build unix

package sidecar

import (
	"os/exec"
	"syscall"
)

// groups says that a process and all that it has started can be ended together.
const groups = true

// ownGroup puts a child into a process group of its own. So Ctrl-C, which a terminal
// sends to all of its group, does not reach the child, and what it is doing is done.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// endGroup asks all of a group to end.
func endGroup(leader int) error { return syscall.Kill(-leader, syscall.SIGTERM) }

// killGroup ends the rest of it.
func killGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
