package fidelity

import (
	"bufio"
	"cmp"
	_ "embed" // for the script below
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

//go:embed peers.py
var script string

// parent is the process from which the peers of a package are forked.
type parent struct {
	socket string
	end    func()
	err    error
}

var (
	parentsMu sync.Mutex
	parents   = make(map[string]parent) // by the python that runs them
)

// parentOf returns the socket of the parent for a python. Each connection to it is a peer. The first call starts the
// parent.
func parentOf(python string) (socket string, err error) {
	parentsMu.Lock()
	defer parentsMu.Unlock()
	p, ok := parents[python]
	if !ok {
		p = startParent(python)
		parents[python] = p
	}
	return p.socket, p.err
}

func startParent(python string) (p parent) {
	dir, err := os.MkdirTemp("", "redeliver-peers-")
	if err != nil {
		return parent{err: err}
	}
	p = parent{socket: filepath.Join(dir, "socket"), end: func() { _ = os.RemoveAll(dir) }}
	cmd := exec.Command(python, "-B", "-c", script, p.socket) //nolint:noctx // it ends gracefully with its stdin
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if p.err = cmp.Or(err1, err2); p.err != nil {
		return p
	}
	if p.err = cmd.Start(); p.err != nil {
		return p
	}
	p.end = func() {
		_ = in.Close()
		_ = cmd.Wait() // its work is done
		_ = os.RemoveAll(dir)
	}
	var hello struct {
		Error string `json:"error"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &hello)
	}
	switch {
	case errors.Is(err, io.EOF):
		p.err = fmt.Errorf("%s has ended; stderr says why", python)
	case err != nil:
		p.err = err
	case hello.Error != "":
		p.err = errors.New(hello.Error)
	}
	return p
}

// EndPeers ends the parents, which StartPeer keeps running for later tests. TestMain calls it after all tests.
func EndPeers() {
	parentsMu.Lock()
	defer parentsMu.Unlock()
	for _, p := range parents {
		if p.end != nil {
			p.end()
		}
	}
	clear(parents)
}
