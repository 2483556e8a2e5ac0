package console

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// maxHits is the maximum number of search results.
const maxHits = 100

// Hit is a message that a search has found.
type Hit struct {
	DLQ string // the key of the DLQ
	Row
}

// Found is the result of a search.
type Found struct {
	Hits    []Hit
	Scanned int64
	More    bool     // there are more than maxHits
	Cut     []string // DLQs that were not searched to their end in time
	Costly  []string // DLQs that were not searched, because reading changes something
	Silent  []string // DLQs that did not answer
	ByID    []string // DLQs in which a viewer searches only by id
}

// search searches the ids, keys, errors, bodies and header values of all DLQs for a text, the smallest DLQ first. Each
// DLQ has an equal share of the time.
func (d *desk) search(ctx context.Context, who Actor, text string) (found Found, err error) {
	ctx, leave, err := d.look(ctx)
	if err != nil {
		return found, err
	}
	defer leave()
	var queues []*openQueue
	for _, q := range d.known() {
		switch here := who.on(q); {
		case d.may(here, List) != nil:
		case q.costly:
			found.Costly = append(found.Costly, q.key)
		default:
			queues = append(queues, q)
		}
	}
	slices.SortStableFunc(queues, func(x, y *openQueue) int { return cmp.Compare(x.count(), y.count()) })
	for i, q := range queues {
		deadline, _ := ctx.Deadline()
		share, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(queues)-i))
		err := d.searchOne(share, who, q, text, &found)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			found.Cut = append(found.Cut, q.key)
		case ctx.Err() != nil:
			return found, ctx.Err()
		case errors.Is(err, errAudit):
			return found, err
		case err != nil:
			found.Silent = append(found.Silent, q.key)
		}
		if found.More {
			break
		}
	}
	return found, nil
}

// searchOne searches one DLQ for a text.
func (d *desk) searchOne(ctx context.Context, who Actor, q *openQueue, text string, found *Found) error {
	rec := Record{Action: Search, Text: d.errorText(auditor, q.info, nil, text)}
	if d.may(who.on(q), Search) != nil { // otherwise a user could learn hidden content by searching for it
		rec = Record{Action: List}
		found.ByID = append(found.ByID, q.key)
	}
	if _, err := d.enter(&who, q.key, rec); err != nil {
		return err
	}
	scan, err := q.q.Scan(ctx, deadletter.Start)
	if err != nil {
		return err
	}
	defer scan.Close()
	in := []byte(text)
	want := func(m *deadletter.Message) bool {
		found.Scanned++
		return strings.Contains(m.ID, text) || rec.Action == Search && has(m, text, in)
	}
	for {
		m, err := scan.Next(ctx, want)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, deadletter.ErrBlocked):
			return nil
		case err != nil:
			return err
		case m == nil:
		case len(found.Hits) == maxHits:
			found.More = true
			return nil
		default:
			found.Hits = append(found.Hits, Hit{q.key, d.listed(who, q, m)})
		}
	}
}

// has reports whether a message contains a text.
func has(m *deadletter.Message, text string, in []byte) bool {
	return bytes.Contains(m.Key, in) || strings.Contains(m.State.Error, text) || bytes.Contains(m.Body, in) ||
		slices.ContainsFunc(m.Headers, func(h deadletter.Header) bool { return bytes.Contains(h.Value, in) })
}

// count returns the number of messages at the last count.
func (q *openQueue) count() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.seen.Count
}
