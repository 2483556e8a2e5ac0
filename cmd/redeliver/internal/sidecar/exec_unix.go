//go:build unix

package sidecar

import (
	"os/exec"
	"syscall"
)

// groups reports whether a process and all that it has started can be ended together.
const groups = true

// ownGroup puts a child into its own process group. A terminal sends Ctrl-C only to our group, so the child does not
// receive it and can finish its work.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// endGroup asks all processes of a group to end.
func endGroup(leader int) error { return syscall.Kill(-leader, syscall.SIGTERM) }

// killGroup kills the remaining processes of a group.
func killGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
