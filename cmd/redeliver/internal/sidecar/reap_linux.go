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

// reaper waits for processes that a command has left behind. The first process of a
// container becomes their parent when the command ends, and without a wait each of them
// stays as a zombie, until no process can be started.
type reaper struct {
	start sync.RWMutex // held while a child has begun and is not in own yet
	mu    sync.Mutex   // of own
	own   map[int]int  // children for which os/exec waits; a pid may be given anew
}

// newReaper begins to reap. It does so until the process ends.
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

// reap waits for each child that has ended, but for those for which os/exec waits.
func (r *reaper) reap() {
	r.start.Lock()
	defer r.start.Unlock()
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list) // of a thread that has ended meanwhile: the next signal comes
		for pid := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(pid); err == nil && r.count(n, 0) == 0 {
				_, _ = syscall.Wait4(n, nil, syscall.WNOHANG, nil)
			}
		}
	}
}

// count adds to how often a process is a child of our own.
func (r *reaper) count(pid, add int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.own[pid] += add; r.own[pid] == 0 {
		delete(r.own, pid)
		return 0
	}
	return r.own[pid]
}

// begin starts a child, for which the caller waits. The caller calls over when that was done.
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
