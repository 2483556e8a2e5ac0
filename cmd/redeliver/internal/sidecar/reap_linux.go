package sidecar

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// reaper waits for processes that a command has left behind. The first process of a container becomes their parent when
// the command ends. Without a wait they would remain as zombies until no process could be started.
type reaper struct {
	start sync.RWMutex // held while a child has started and is not in own yet
	mu    sync.Mutex   // guards own
	own   map[int]int  // number of waits by os/exec per child; a pid may be reused
}

// newReaper starts a reaper. It runs until the process ends.
func newReaper() *reaper {
	r := &reaper{own: make(map[int]int)}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			r.reap()
		}
	}()
	return r
}

// reap waits for each child that has ended, except those that os/exec waits for.
func (r *reaper) reap() {
	r.start.Lock()
	defer r.start.Unlock()
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list) // fails if the thread has ended: there will be another signal
		for pid := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(pid); err == nil && r.count(n, 0) == 0 {
				_, _ = syscall.Wait4(n, nil, syscall.WNOHANG, nil)
			}
		}
	}
}

// count adds to the number of waits for a process, and returns the number.
func (r *reaper) count(pid, add int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.own[pid] += add; r.own[pid] == 0 {
		delete(r.own, pid)
		return 0
	}
	return r.own[pid]
}

// begin starts a child. The caller waits for it, and then calls over.
func (r *reaper) begin(cmd *exec.Cmd) (over func(), err error) {
	if r == nil {
		return func() {}, cmd.Start()
	}
	r.start.RLock()
	defer r.start.RUnlock()
	if err := cmd.Start(); err != nil {
		return func() {}, err
	}
	r.count(cmd.Process.Pid, 1)
	return func() { r.count(cmd.Process.Pid, -1) }, nil
}
