package middleware

import (
	"cmp"
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/redeliver/redeliver/internal/check"
)

// defaultDedupIDs is the default number of ids of a [DedupMemory].
const defaultDedupIDs = 100_000

// DedupMemory is a [DedupStore] in the memory of one process. When it is full, it drops the oldest mark. It is safe for
// concurrent use.
type DedupMemory struct {
	maxIDs int

	mu    sync.Mutex
	keys  map[string]*list.Element
	marks list.List // of dedupMark, the oldest first
}

type dedupMark struct {
	key  string
	ends time.Time
}

// NewDedupMemory returns a store for at most maxIDs ids, each of about 200 bytes; 0 means 100,000. A negative maxIDs is
// a [redeliver.ConfigError].
func NewDedupMemory(maxIDs int) (*DedupMemory, error) {
	if maxIDs < 0 {
		var ps check.Problems
		ps.Add("maxIDs", maxIDs, "must not be negative; 0 is the default, 100000")
		return nil, ps.Err()
	}
	return &DedupMemory{maxIDs: cmp.Or(maxIDs, defaultDedupIDs), keys: make(map[string]*list.Element)}, nil
}

// Seen implements [DedupStore].
func (s *DedupMemory) Seen(_ context.Context, key string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.keys[key]
	return ok && time.Now().Before(e.Value.(dedupMark).ends), nil //nolint:forcetypeassert // only Mark writes there
}

// Mark implements [DedupStore].
func (s *DedupMemory) Mark(_ context.Context, key string, ttl time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if e, ok := s.keys[key]; ok {
		s.marks.Remove(e)
	}
	s.keys[key] = s.marks.PushBack(dedupMark{key, now.Add(ttl)})
	for e := s.marks.Front(); e != nil; e = s.marks.Front() {
		m := e.Value.(dedupMark) //nolint:forcetypeassert // only this function writes there
		if s.marks.Len() <= s.maxIDs && now.Before(m.ends) {
			break
		}
		s.marks.Remove(e)
		delete(s.keys, m.key)
	}
	return nil
}

// Len returns the number of ids in the store. Some may have passed their ttl.
func (s *DedupMemory) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks.Len()
}
