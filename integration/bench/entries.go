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
// two words are the number of entries and of those of kind entryEnded. Each entry has two words: id, attempt and kind,
// and the time in nanoseconds.
type entryLog struct {
	bytes []byte
	count *atomic.Uint64
	ended *atomic.Uint64
}

const (
	entryStarted   = 1 // the handler was entered
	entryForwarded = 2 // the message's next hop was confirmed
	entryEnded     = 3 // the message succeeded or is in the DLQ

	entryRoom = 2_000_000
	entrySize = 16
	entryHead = 16
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
	size := entryHead + entryRoom*entrySize
	if err := f.Truncate(int64(size)); err != nil {
		return nil
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil
	}
	word := func(at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&b[at])) } //nolint:gosec // The mapping is page-aligned.
	return &entryLog{bytes: b, count: word(0), ended: word(8)}
}

func (l *entryLog) add(kind int, id uint64, attempt int, at time.Time) {
	if l == nil {
		return
	}
	i := l.count.Add(1) - 1
	if i >= entryRoom {
		return
	}
	b := l.bytes[entryHead+i*entrySize:]
	binary.NativeEndian.PutUint64(b[8:], uint64(at.UnixNano()))
	binary.NativeEndian.PutUint64(b, id<<16|uint64(attempt&0xff)<<8|uint64(kind))
	if kind == entryEnded {
		l.ended.Add(1)
	}
}

// entry is one line of an entryLog.
type entry struct {
	kind    int
	id      uint64
	attempt int
	at      time.Time
}

// readEntries reads a log, which its writer may still be adding to.
func readEntries(path string) ([]entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, _, err := countEntries(f)
	if err != nil {
		return nil, err
	}
	if n > entryRoom {
		return nil, fmt.Errorf("%s: %d entries, the maximum is %d", path, n, entryRoom)
	}
	b := make([]byte, n*entrySize)
	if _, err := f.ReadAt(b, entryHead); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	entries := make([]entry, 0, n)
	for ; n > 0; n-- {
		x, at := binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[8:])
		b = b[entrySize:]
		if x == 0 {
			continue // the writer was killed, or is still, between reserving the slot and filling it
		}
		entries = append(entries, entry{kind: int(x & 0xff), attempt: int(x >> 8 & 0xff), id: x >> 16, at: time.Unix(0, int64(at))})
	}
	return entries, nil
}

// countEntries returns how many entries a log has, and how many of kind entryEnded.
func countEntries(f *os.File) (all, ended uint64, err error) {
	var head [entryHead]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return 0, 0, fmt.Errorf("%s: too short for a log of entries: %w", f.Name(), err)
	}
	return binary.NativeEndian.Uint64(head[:]), binary.NativeEndian.Uint64(head[8:]), nil
}
