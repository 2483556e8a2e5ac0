//go:build prove

package chaos

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/agiledragon/gomonkey/v2"
)

// A consumer's clock. redeliver reads time.Now, as programs do, and its configuration has no other clock, so the
// consumer's process replaces time.Now. A step changes the wall clock but not the clock of timers and deadlines, as
// when the system's own clock is set.
var (
	clockBase = time.Now()
	clockStep atomic.Int64 // seconds
)

// replaceClock must be called before anything reads the time. The replacement is a function, not a closure, because
// gomonkey writes its address into machine code, where the garbage collector does not see it.
func replaceClock() { gomonkey.ApplyFunc(time.Now, steppedNow) }

// realNow returns the time of the machine. time.Since reads the monotonic clock and does not call time.Now.
func realNow() time.Time { return clockBase.Add(time.Since(clockBase)) }

func steppedNow() time.Time {
	t := realNow()
	// The first word of a Time with a monotonic reading has the wall clock's seconds in the bits 30 to 62. No function
	// changes them alone.
	*(*uint64)(unsafe.Pointer(&t)) += uint64(clockStep.Load()) << 30
	return t
}
