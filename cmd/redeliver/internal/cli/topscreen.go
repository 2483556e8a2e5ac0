package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
)

// The terminal control sequences of the screen.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
)

// topScreen draws the data of redeliver top.
type topScreen struct {
	a      *app
	from   string // the broker
	every  time.Duration
	order  string
	levels bool // lists the levels
	paused bool

	rows []topRow
	at   time.Time // time of rows
	err  error     // of the last sample
}

// run draws until ctx ends or the user presses q.
func (s *topScreen) run(ctx context.Context, w *watch) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	rows, err := w.sample(ctx) // an error ends top: no answer, or a missing right
	if err != nil {
		return err
	}
	s.setSample(rows, nil)
	type sample struct {
		rows []topRow
		err  error
		took time.Duration
	}
	samples := make(chan sample, 1)
	reading := false
	defer func() { // after the terminal is restored, because a broker may be slow
		if end(); reading {
			<-samples // the sample uses the broker, which is closed next
		}
	}()
	restore, err := s.a.Screen.Raw()
	if err != nil {
		return fmt.Errorf("preparing the terminal: %w", err)
	}
	defer restore()
	if err := s.a.write(enterScreen); err != nil {
		return err
	}
	defer func() { _ = s.a.write(leaveScreen) }()

	keys := s.keys(ctx)
	next := time.NewTimer(s.every)
	defer next.Stop()
	for {
		if err := s.draw(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case key, ok := <-keys:
			if !ok || !s.handleKey(key) {
				return nil
			}
		case got := <-samples:
			reading = false
			s.setSample(got.rows, got.err)
			next.Reset(max(s.every, got.took)) // read at most half of the time
		case <-next.C:
			if s.paused {
				next.Reset(s.every)
				continue
			}
			reading = true
			go func() {
				began := time.Now()
				rows, err := w.sample(ctx)
				samples <- sample{rows, err, time.Since(began)}
			}()
		}
	}
}

func (s *topScreen) setSample(rows []topRow, err error) {
	if s.err = err; err == nil {
		s.rows, s.at = rows, time.Now()
	}
}

// handleKey handles a key and reports whether to continue.
func (s *topScreen) handleKey(key byte) bool {
	switch key {
	case 'q', 'Q', 3, 4: // also Ctrl-C and Ctrl-D, because a raw terminal sends no signal
		return false
	case ' ', 'p':
		s.paused = !s.paused
	case 'l':
		s.levels = !s.levels
	case 'm':
		s.order = "messages"
	case 'c':
		s.order = "change"
	case 'w':
		s.order = "waiting"
	case 'n':
		s.order = "name"
	}
	return true
}

// keys returns a channel of the pressed keys. It is closed at the end of the input.
func (s *topScreen) keys(ctx context.Context) <-chan byte {
	keys := make(chan byte)
	go func() { // a read from a terminal cannot be interrupted
		defer close(keys)
		for one := make([]byte, 1); ; {
			if _, err := io.ReadFull(s.a.In, one); err != nil {
				return
			}
			select {
			case keys <- one[0]:
			case <-ctx.Done():
				return
			}
		}
	}()
	return keys
}

// draw draws the screen with one write.
func (s *topScreen) draw() error {
	width, height := s.a.Screen.Size()
	lines := s.lines(s.a.colour(true), width, height)
	for i := range lines {
		lines[i] = text.Trim(lines[i], max(width, 1)) + clearLine
	}
	return s.a.write(home + strings.Join(lines, "\r\n") + clearRest)
}

// lines returns the lines of a screen of this size.
func (s *topScreen) lines(colour bool, width, height int) []string {
	sortTop(s.rows, s.order)
	var dead, waiting int64
	var deadBy, waitingBy float64
	for i := range s.rows {
		r := &s.rows[i]
		dead, waiting = dead+value(r.Messages), waiting+value(r.Waiting)
		deadBy, waitingBy = deadBy+value(r.PerMinute), waitingBy+value(r.WaitingPerMinute)
	}
	now := timeText(s.at) + ", every " + s.every.String()
	if s.paused {
		now = timeText(s.at) + ", paused"
	}
	head := []string{
		visible(fmt.Sprintf("redeliver top  %s  %s", s.from, now)),
		fmt.Sprintf("DLQs: %s  messages: %s (%s/min)  waiting: %s (%s/min)", thousands(int64(len(s.rows))), thousands(dead), perMinute(&deadBy), thousands(waiting), perMinute(&waitingBy)),
		"",
	}
	if s.err != nil {
		head[2] = visible("the broker does not answer: " + inFlags(s.err))
		if colour {
			enableColours()
			head[2] = text.FgRed.Sprint(head[2])
		}
	}
	foot := []string{"", "m messages  c change  w waiting  n name  l levels  space pause  q quit"}
	blocks := topTable(s.rows, s.at, colour, s.levels, width)
	lines, room := slices.Concat(head, blocks[0]), height-len(foot)
	for i, block := range blocks[1:] {
		rest := len(blocks) - 2 - i
		if n := len(lines) + len(block); n > room || n == room && rest > 0 {
			lines = append(lines, fmt.Sprintf("... and %d more", rest+1))
			break
		}
		lines = append(lines, block...)
	}
	lines = append(lines, foot...)
	return lines[:min(len(lines), max(height, 1))]
}

// value returns *n, or 0 for nil.
func value[N int64 | float64](n *N) (v N) {
	if n != nil {
		v = *n
	}
	return v
}
