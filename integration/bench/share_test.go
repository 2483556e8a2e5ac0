package main

import (
	"net"
	"os"
	"testing"
	"time"
)

func TestRepeatedRunsAfterAKill(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	after := func(s int) time.Time { return at.Add(time.Duration(s) * time.Second) }
	var h history
	h.runs, h.all = make(map[attempt]int), make(map[uint64]bool)
	h.add([]entry{ // killed: 1 ended, 2 and 3 did not
		{entryStarted, 1, 1, after(0)}, {entryStarted, 2, 1, after(1)}, {entryStarted, 3, 1, after(1)}, {entryEnded, 1, 0, after(1)},
	})
	h.add([]entry{
		{entryStarted, 1, 1, after(9)}, {entryEnded, 1, 0, after(9)}, // its ack was lost
		{entryStarted, 2, 1, after(5)}, {entryEnded, 2, 0, after(6)},
	})
	if open, missing, last := h.back(0); open != 2 || missing != 1 || !last.Equal(after(5)) {
		t.Errorf("%d open, %d missing, the last at %s", open, missing, last)
	}
	if n := h.twice(); n != 2 {
		t.Errorf("%d ran twice", n)
	}
	if len(h.all) != 2 || !h.first.Equal(after(0)) || !h.last.Equal(after(9)) {
		t.Errorf("%+v", h)
	}
}

func TestTheProcessOfAPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	if pid := listener(port); pid != os.Getpid() {
		t.Errorf("process %d listens on port %d, not %d", pid, port, os.Getpid())
	}
	_ = l.Close()
	if pid := listener(port); pid != 0 {
		t.Errorf("process %d listens on a port that is closed", pid)
	}
	if cpuOf(1<<30) != 0 {
		t.Error("a process that does not exist has used processor time")
	}
	for began := time.Now(); cpuOf(os.Getpid()) == 0; { // a tick is 10 ms
		if time.Since(began) > time.Minute {
			t.Fatal("this process has used no processor time in a minute of work")
		}
	}
}

func TestRowsByPrefix(t *testing.T) {
	if all := beginning("share-"); len(all) != 6 || all[0] != "share-success-1" {
		t.Errorf("%q", all)
	}
	if all := beginning("share"); all != nil {
		t.Errorf("share is no prefix: %q", all)
	}
}
