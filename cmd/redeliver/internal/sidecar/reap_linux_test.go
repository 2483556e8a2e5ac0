package sidecar

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// As the first process of a container, the sidecar removes the zombies of the processes that a command leaves behind.
func TestNoZombiesAreLeft(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "40")
	cmd.Env = append(os.Environ(), asChild+"=first")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// first handles some messages as the first process of a container, and returns 0 once it has no children.
func first(messages string) int {
	const setChildSubreaper = 36
	if _, _, err := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); err != 0 {
		fmt.Println(err)
		return 1
	}
	e, err := NewExec([]string{os.Args[0]}, append(os.Environ(), asChild+"=quick"), nil, func(string, string) {})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	e.reaper = newReaper()
	n, _ := strconv.Atoi(messages)
	var all sync.WaitGroup
	errs := make(chan error, n)
	for range n {
		all.Go(func() { errs <- e.Handle(context.Background(), newMessage()) })
	}
	all.Wait()
	for range n {
		if err := <-errs; err != nil {
			fmt.Println("handling a message:", err)
			return 1
		}
	}
	children := ""
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		children = ""
		lists, _ := filepath.Glob("/proc/self/task/*/children")
		for _, list := range lists {
			text, _ := os.ReadFile(list)
			children += string(text)
		}
		if children == "" {
			return 0
		}
	}
	fmt.Println("these are left:", children)
	return 1
}
