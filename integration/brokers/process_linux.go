package brokers

import "syscall"

// dieWithParent lets the kernel kill the child when we end, in whatever way.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
