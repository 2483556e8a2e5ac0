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

// searchHit is a message that a search has found.
type searchHit struct {
	DLQ string // the key of the DLQ
	messageRow
}

// searchResult is the result of a search.
type searchResult struct {
	Hits      []searchHit
	Scanned   int64
	More      bool     // there are more than maxHits
	TimedOut  []string // DLQs that were not searched to their end in time
	ReadCosts []string // DLQs that were not searched, because reading changes something
	Failed    []string // DLQs that did not answer
	ByID      []string // DLQs in which a viewer searches only by id
}

// searchQueues searches the ids, keys, errors, bodies and header values of all DLQs for a text, the smallest DLQ first.
// Each DLQ has an equal share of the time.
func (svc *service) searchQueues(ctx context.Context, who Actor, text string) (found searchResult, err error) {
	ctx, release, err := svc.acquireRead(ctx)
	if err != nil {
		return found, err
	}
	defer release()
	var queues []*openQueue
	for _, q := range svc.allQueues() {
		switch here := who.forQueue(q); {
		case svc.checkRight(here, ActionList) != nil:
		case q.readCosts:
			found.ReadCosts = append(found.ReadCosts, q.key)
		default:
			queues = append(queues, q)
		}
	}
	slices.SortStableFunc(queues, func(x, y *openQueue) int { return cmp.Compare(x.lastCount(), y.lastCount()) })
	for i, q := range queues {
		deadline, _ := ctx.Deadline()
		share, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(queues)-i))
		err := svc.searchQueue(share, who, q, text, &found)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			found.TimedOut = append(found.TimedOut, q.key)
		case ctx.Err() != nil:
			return found, ctx.Err()
		case errors.Is(err, errAudit):
			return found, err
		case err != nil:
			found.Failed = append(found.Failed, q.key)
		}
		if found.More {
			break
		}
	}
	slices.SortStableFunc(found.Hits, func(x, y searchHit) int { return y.Failed.Compare(x.Failed) })
	return found, nil
}

// searchQueue searches one DLQ for a text.
func (svc *service) searchQueue(ctx context.Context, who Actor, q *openQueue, text string, found *searchResult) error {
	rec := Record{Action: ActionSearch, Text: svc.redactErrorText(auditor, q.info, nil, text)}
	if svc.checkRight(who.forQueue(q), ActionSearch) != nil { // otherwise a user could learn hidden content by searching for it
		rec = Record{Action: ActionList}
		found.ByID = append(found.ByID, q.key)
	}
	if _, err := svc.openFor(&who, q.key, rec); err != nil {
		return err
	}
	scan, err := q.q.Scan(ctx, deadletter.FromStart)
	if err != nil {
		return err
	}
	defer scan.Close()
	in := []byte(text)
	want := func(m *deadletter.Message) bool {
		found.Scanned++
		return strings.Contains(m.ID, text) || rec.Action == ActionSearch && containsText(m, text, in)
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
			found.Hits = append(found.Hits, searchHit{q.key, svc.newListRow(who, q, m)})
		}
	}
}

// containsText reports whether a message contains a text.
func containsText(m *deadletter.Message, text string, in []byte) bool {
	return bytes.Contains(m.Key, in) || strings.Contains(m.State.Error, text) || strings.Contains(m.State.FirstError, text) || bytes.Contains(m.Body, in) ||
		slices.ContainsFunc(m.Headers, func(h deadletter.Header) bool { return bytes.Contains(h.Value, in) })
}

// lastCount returns the number of messages at the last count.
func (q *openQueue) lastCount() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last.Count
}
