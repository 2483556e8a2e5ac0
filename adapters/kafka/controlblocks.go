package kafka

import "maps"

// blockSize is how many offsets are in one record of the control topic.
const blockSize = 8192

// block says which of its records one session of a lane has settled. Nobody else adds to
// it, and the times tell those records from what another topic of the same name had at
// their offsets, one that was deleted and made anew: a block that a later session went
// on with would span the lives of both, and what was never settled would count as
// settled.
type block struct {
	Bits  []byte `json:"bits"`
	First int64  `json:"first"` // the earliest timestamp of a settled record, in Unix milliseconds
	Last  int64  `json:"last"`
}

func (b *block) has(i int64) bool { return b.Bits[i/8]&(1<<(i%8)) != 0 }

// about tells whether a record of that time may be one of the block's.
func (b *block) about(at int64) bool { return at >= b.First && at <= b.Last }

// blocks of one partition, by their first offset divided by blockSize and by the session
// that has settled them.
type blocks map[int64]map[string]*block

func (bs blocks) has(offset, at int64) bool {
	for _, b := range bs[offset/blockSize] {
		if b.has(offset%blockSize) && b.about(at) {
			return true
		}
	}
	return false
}

// strangers are the sessions that have settled another record at the offset: what they
// settled was in another life of the topic.
func (bs blocks) strangers(offset, at int64) (sessions []string) {
	for session, b := range bs[offset/blockSize] {
		if b.has(offset%blockSize) && !b.about(at) {
			sessions = append(sessions, session)
		}
	}
	return sessions
}

// set is for a session's own blocks alone.
func (bs blocks) set(session string, offset, at int64) {
	n, i := offset/blockSize, offset%blockSize
	b := bs[n][session]
	if b == nil {
		b = &block{Bits: make([]byte, blockSize/8), First: at, Last: at}
		bs.put(n, session, b)
	}
	b.Bits[i/8] |= 1 << (i % 8)
	b.First, b.Last = min(b.First, at), max(b.Last, at)
}

func (bs blocks) put(n int64, session string, b *block) {
	if bs[n] == nil {
		bs[n] = make(map[string]*block)
	}
	bs[n][session] = b
}

// drop takes out one session's block; n is gone with the last of them.
func (bs blocks) drop(n int64, session string) {
	if delete(bs[n], session); len(bs[n]) == 0 {
		delete(bs, n)
	}
}

// shared is a copy that has the same blocks. A book replaces its blocks and changes none.
func (bs blocks) shared() blocks {
	own := make(blocks, len(bs))
	for n, all := range bs {
		own[n] = maps.Clone(all)
	}
	return own
}

// count is how many offsets from start on, below end, are settled.
func (bs blocks) count(start, end int64) (n int64) {
	for first, all := range bs {
		for i := range int64(blockSize) {
			if offset := first*blockSize + i; offset < start || offset >= end {
				continue
			}
			for _, b := range all {
				if b.has(i) {
					n++
					break
				}
			}
		}
	}
	return n
}
