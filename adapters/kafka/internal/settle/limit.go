package settle

import (
	"slices"
	"sync"
	"time"

	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
)

// limitMemory is how long a Limit remembers that brokers refused metadata. Then a commit tries the full size again.
const limitMemory = time.Minute

// limitSteps are sizes of metadata that commits try one after another while brokers refuse them.
var limitSteps = []int{0, 64, 80, 100, 125, 150, 200, 250, 300, 400, 500, 750, 1000, 1500, 2000, 3000}

// Limit is how many bytes of metadata the brokers accept in a commit. All sessions of a reader share it. The zero Limit
// expects that they accept commitmeta.MaxText.
type Limit struct {
	mu       sync.Mutex
	max      int // after a refusal
	refused  time.Time
	accepted int       // the longest metadata that was accepted
	proved   time.Time // when a commit was accepted last
}

// proofInterval is the time after which a Committer whose group lets sarama commit makes a commit of its own, because
// sarama does not say that the broker refuses its commits.
const proofInterval = 10 * time.Second

// size returns the size that the next commit may have.
func (l *Limit) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isShortLocked() {
		return l.max
	}
	return commitmeta.MaxText
}

// isShort reports whether brokers have refused metadata.
func (l *Limit) isShort() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isShortLocked()
}

func (l *Limit) isShortLocked() bool {
	return !l.refused.IsZero() && time.Since(l.refused) < limitMemory
}

// refuse records that a broker has refused metadata of a size.
func (l *Limit) refuse(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearch(limitSteps, size)
	next := limitSteps[max(0, i-1)]
	if l.isShortLocked() {
		next = min(next, l.max) // the refusal of an older commit
	}
	l.max, l.refused, l.accepted = next, time.Now(), min(l.accepted, next)
}

// accept records that a broker has accepted metadata of a size.
func (l *Limit) accept(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted, l.proved = max(l.accepted, size), time.Now()
}

// hasAccepted reports whether brokers have recently accepted a commit, and accept metadata of a size.
func (l *Limit) hasAccepted(size int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return size <= l.accepted && time.Since(l.proved) < proofInterval
}
