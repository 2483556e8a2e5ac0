package redeliver

import (
	"fmt"
	"path"
	"strings"

	"github.com/redeliver/redeliver/internal/limits"
)

const (
	maxFrames    = 3   // functions that panicPlace names
	maxFrameText = 120 // bytes of the text for one function
)

// panicPlace names the functions in which the handler panicked, the innermost first: "charge.(*Card).Pay (card.go:42)".
// It is empty if the stack names none.
func (e *PanicError) panicPlace() string {
	lines := strings.Split(string(e.Stack), "\n")
	at := 0
	for at < len(lines) && !strings.HasPrefix(lines[at], "panic(") && !strings.HasPrefix(lines[at], "runtime.Goexit(") {
		at++
	}
	var frames []string
	for ; at+1 < len(lines) && len(frames) < maxFrames; at += 2 { // a function, and below it its file
		call, file := lines[at], strings.TrimSpace(lines[at+1])
		if strings.HasPrefix(call, "panic(") || strings.HasPrefix(call, "runtime.") {
			continue
		}
		if strings.HasPrefix(call, "created by ") || strings.HasPrefix(call, "github.com/redeliver/redeliver/internal/engine.") {
			break
		}
		if end := strings.LastIndexByte(call, '('); end > 0 {
			call = call[:end]
		}
		file, _, _ = strings.Cut(file, " ")
		frames = append(frames, limits.Cut(fmt.Sprintf("%s (%s)", path.Base(call), path.Base(file)), maxFrameText))
	}
	return strings.Join(frames, ", ")
}
