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
// It leaves out those of redeliver and Watermill, unless there are no others. It is empty if the stack names none.
func (e *PanicError) panicPlace() string {
	lines := strings.Split(string(e.Stack), "\n")
	at := 0
	for at < len(lines) && !strings.HasPrefix(lines[at], "panic(") && !strings.HasPrefix(lines[at], "runtime.Goexit(") {
		at++
	}
	var frames, ours []string
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
		frame := limits.Cut(fmt.Sprintf("%s (%s)", path.Base(call), path.Base(file)), maxFrameText)
		if isFramework(call) {
			ours = append(ours, frame)
		} else {
			frames = append(frames, frame)
		}
	}
	if len(frames) == 0 {
		frames = ours[:min(len(ours), maxFrames)]
	}
	return strings.Join(frames, ", ")
}

// isFramework reports whether a function is redeliver's or Watermill's, and so tells nothing about the handler.
func isFramework(function string) bool {
	for _, module := range [...]string{"github.com/redeliver/redeliver", "github.com/ThreeDotsLabs/watermill"} {
		rest, ok := strings.CutPrefix(function, module)
		if ok && rest != "" && (rest[0] == '/' || rest[0] == '.' || rest[0] == '-') { // watermill-kafka is Watermill's, too
			return true
		}
	}
	return false
}
