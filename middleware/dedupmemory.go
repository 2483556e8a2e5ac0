package middleware

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"
)

// DefaultDedupIDs is how many ids a [DedupMemory] holds by default.
const DefaultDedupIDs = 100_000

// DedupMemory is a [DedupStore] in the memory of one process. When it is full the
// oldest mark is forgotten.
type DedupMemory struct {
	most int

	mu    sync.Mutex
	keys  map[string]*list.Element
	marks list.List // of dedupMark, the oldest first
}

type dedupMark struct {
	key  string
	ends time.Time
}

// NewDedupMemory makes a store for at most so many ids; 0 is 100,000, of which
// each takes about 200 bytes. It panics when most is negative.
func NewDedupMemory(most int) *DedupMemory {
	if most < 0 {
		panic(fmt.Sprintf("dedup: a memory of %d ids: must not be negative; 0 is the default, %d", most, DefaultDedupIDs))
	}
	most = cmp.Or(most, DefaultDedupIDs)
	return &DedupMemory{most: most, keys: make(map[string]*list.Element)}
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
		if s.marks.Len() <= s.most && now.Before(m.ends) {
			break
		}
		s.marks.Remove(e)
		delete(s.keys, m.key)
	}
	return nil
}

// Len is the number of ids that it holds, with those whose time is over and that
// were not yet forgotten.
func (s *DedupMemory) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks.Len()
}
