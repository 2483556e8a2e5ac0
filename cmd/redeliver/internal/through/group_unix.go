//go:build unix

package through

import (
	"os/exec"
	"syscall"
)

// inOwnGroup makes a command the leader of a group of processes, so that Ctrl-C does not reach it, and a time-out ends its children, too.
func inOwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
