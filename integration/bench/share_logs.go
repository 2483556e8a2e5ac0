package main

import (
	"os"
	"time"
)

// entryLogs are the entry logs of several processes.
type entryLogs []*os.File

// openEntryLogs opens logs that their writers have made.
func openEntryLogs(paths []string) (logs entryLogs, err error) {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			logs.close()
			return nil, err
		}
		logs = append(logs, f)
	}
	return logs, nil
}

func (l entryLogs) close() {
	for _, f := range l {
		_ = f.Close()
	}
}

// ended returns how often a message has ended, and in which process most did. A message that ran twice may count twice.
func (l entryLogs) ended() (n, busiest int, err error) {
	var most uint64
	for i, f := range l {
		_, ended, err := countEntries(f)
		if err != nil {
			return 0, 0, err
		}
		if n += int(ended); ended > most {
			most, busiest = ended, i
		}
	}
	return n, busiest, nil
}

// attempt is one attempt of one message.
type attempt struct {
	id uint64
	n  int
}

// history is the merged entry logs of several processes.
type history struct {
	started []map[attempt]time.Time // when each process first started an attempt
	runs    map[attempt]int         // how often an attempt was started
	ended   []map[uint64]bool       // which messages ended in each process
	all     map[uint64]bool         // which ended in any
	first   time.Time               // the first start
	last    time.Time               // the last end
}

func (l entryLogs) history() (*history, error) {
	h := &history{runs: make(map[attempt]int), all: make(map[uint64]bool)}
	for _, f := range l {
		entries, err := readEntries(f.Name())
		if err != nil {
			return nil, err
		}
		h.add(entries)
	}
	return h, nil
}

// add adds the entries of one process.
func (h *history) add(entries []entry) {
	started, ended := make(map[attempt]time.Time), make(map[uint64]bool)
	for _, en := range entries {
		switch en.kind {
		case entryStarted:
			a := attempt{en.id, en.attempt}
			if at, ok := started[a]; !ok || en.at.Before(at) {
				started[a] = en.at
			}
			h.runs[a]++
			if h.first.IsZero() || en.at.Before(h.first) {
				h.first = en.at
			}
		case entryEnded:
			ended[en.id], h.all[en.id] = true, true
			if en.at.After(h.last) {
				h.last = en.at
			}
		}
	}
	h.started, h.ended = append(h.started, started), append(h.ended, ended)
}

// twice returns how many attempts were started more than once.
func (h *history) twice() (n int) {
	for _, runs := range h.runs {
		if runs > 1 {
			n++
		}
	}
	return n
}

// back describes the messages that a killed process had begun and not ended. open is their number, missing the number of
// those that no other process has started again, and last the time of the last such start.
func (h *history) back(killed int) (open, missing int, last time.Time) {
	for a := range h.started[killed] {
		if h.ended[killed][a.id] {
			continue
		}
		open++
		var again time.Time
		for i, started := range h.started {
			if at, ok := started[a]; ok && i != killed && (again.IsZero() || at.Before(again)) {
				again = at
			}
		}
		if again.IsZero() {
			missing++
		} else if again.After(last) {
			last = again
		}
	}
	return open, missing, last
}
