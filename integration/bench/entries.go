package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// entryLog is a memory-mapped file that survives a SIGKILL of its writer, because the kernel keeps its pages. The first
// word is the number of entries, each entry two words: id, attempt and kind, and the time in nanoseconds.
type entryLog struct {
	bytes []byte
	count *atomic.Uint64
}

const (
	entryStarted   = 1 // the handler was entered
	entryForwarded = 2 // the message's next hop was confirmed

	entryRoom = 2_000_000
	entrySize = 16
)

// openEntryLog returns nil for an empty path, or if the file cannot be created: then there are no entries to read.
func openEntryLog(path string) *entryLog {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil
	}
	defer f.Close()
	size := 8 + entryRoom*entrySize
	if err := f.Truncate(int64(size)); err != nil {
		return nil
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil
	}
	return &entryLog{bytes: b, count: (*atomic.Uint64)(unsafe.Pointer(&b[0]))} //nolint:gosec // The mapping is page-aligned.
}

func (l *entryLog) add(kind int, id uint64, attempt int, at time.Time) {
	if l == nil {
		return
	}
	i := l.count.Add(1) - 1
	if i >= entryRoom {
		return
	}
	b := l.bytes[8+i*entrySize:]
	binary.NativeEndian.PutUint64(b[8:], uint64(at.UnixNano()))
	binary.NativeEndian.PutUint64(b, id<<16|uint64(attempt&0xff)<<8|uint64(kind))
}

// entry is one line of an entryLog.
type entry struct {
	kind    int
	id      uint64
	attempt int
	at      time.Time
}

func readEntries(path string) ([]entry, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(b) < 8 {
		return nil, fmt.Errorf("%s: too short for a log of entries", path)
	}
	n := binary.NativeEndian.Uint64(b)
	if n > entryRoom {
		return nil, fmt.Errorf("%s: %d entries, the maximum is %d", path, n, entryRoom)
	}
	entries := make([]entry, 0, n)
	for b = b[8:]; n > 0; n-- {
		x, at := binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[8:])
		b = b[entrySize:]
		if x == 0 {
			continue // the writer was killed between reserving the slot and filling it
		}
		entries = append(entries, entry{kind: int(x & 0xff), attempt: int(x >> 8 & 0xff), id: x >> 16, at: time.Unix(0, int64(at))})
	}
	return entries, nil
}
