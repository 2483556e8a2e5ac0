//go:build prove

package chaos

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/agiledragon/gomonkey/v2"
)

// A consumer's clock. redeliver reads time.Now, as programs do, and has no other in its configuration; so it is time.Now
// that is replaced in the consumer's process. A step changes what the wall clock shows and leaves alone what timers and
// deadlines go by, as the system's own clock does when it is set.
var (
	clockBase = time.Now()
	clockStep atomic.Int64 // seconds
)

// replaceClock is called before anything reads the time. The replacement is a function and no closure: gomonkey writes its
// address into machine code, where the garbage collector does not see it.
func replaceClock() { gomonkey.ApplyFunc(time.Now, steppedNow) }

// realNow is the time of the machine. time.Since reads the monotonic clock, and not time.Now.
func realNow() time.Time { return clockBase.Add(time.Since(clockBase)) }

func steppedNow() time.Time {
	t := realNow()
	// The first word of a Time with a monotonic reading has the wall clock's seconds in the bits 30 to 62. There is no
	// function that changes them alone.
	*(*uint64)(unsafe.Pointer(&t)) += uint64(clockStep.Load()) << 30
	return t
}
