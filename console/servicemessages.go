package console

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// Limits of what one page may cost.
const (
	maxReadTime = 15 * time.Second // maximum time for which a page reads a DLQ
	maxReads    = 4                // maximum number of concurrent reads for pages; each needs memory for a fetch
	maxRows     = 200
	maxSkip     = 1_000_000
	maxNewer    = 2_000 // maximum number of skipped messages if the newest come first
)

// listQuery is the list that a page requests.
type listQuery struct {
	Filter deadletter.Filter
	Size   int
	Skip   int
	Newest bool // the newest first
}

// messageList is a page of the messages that match a filter.
type messageList struct {
	Rows []messageRow
	// Scanned is the number of messages that were read. More reports whether there are more matches, TimedOut whether the
	// time ran out before the end.
	Scanned        int64
	More, TimedOut bool
}

// messageRow is a message in a list.
type messageRow struct {
	Position       deadletter.Position
	ID             string
	Key            []byte // nil for users who may not see it
	Failed         time.Time
	Attempts       int
	Replays        int
	Reason         redeliver.Reason
	Type, Error    string
	Mismatch       string
	Size           int
	HasKey, Hidden bool // Hidden: there is a key, and the user may not see it
}

// acquireRead acquires one of the slots for reading DLQs. The returned context limits the read to maxReadTime; release
// frees the slot.
func (svc *service) acquireRead(ctx context.Context) (bounded context.Context, release func(), err error) {
	bounded, cancel := context.WithTimeout(ctx, maxReadTime)
	select {
	case svc.readSlots <- struct{}{}:
		return bounded, func() { cancel(); <-svc.readSlots }, nil
	case <-bounded.Done():
		cancel()
		return nil, nil, fmt.Errorf("%w: %w", errBusy, bounded.Err())
	}
}

// errBusy reports that no slot became free. Nothing was done.
var errBusy = errors.New("too many users read DLQs at once")

// listMessages returns the messages that w requests.
func (svc *service) listMessages(ctx context.Context, who Actor, key string, w listQuery) (messageList, error) {
	r := Record{Action: ActionList}
	if searchesContent(&w.Filter) {
		r.Action, r.Filter = ActionSearch, &w.Filter
	}
	q, err := svc.openFor(&who, key, r)
	if err != nil {
		return messageList{}, err
	}
	w.Size, w.Skip = min(max(w.Size, 1), maxRows), min(max(w.Skip, 0), maxSkip)
	if w.Newest {
		w.Skip = min(w.Skip, maxNewer)
	}
	ctx, release, err := svc.acquireRead(ctx)
	if err != nil {
		return messageList{}, err
	}
	defer release()
	var out messageList
	counted := observedQueue{q.q, func(*deadletter.Message) { out.Scanned++ }}
	if w.Newest {
		err := svc.listNewest(ctx, who, q, counted, w, &out)
		return out, err
	}
	n := 0
	for m, failed := range deadletter.Browse(ctx, counted, w.Filter) {
		if failed != nil {
			err = failed
			break
		}
		if n++; n <= w.Skip {
			continue
		}
		if len(out.Rows) == w.Size {
			out.More = true
			break
		}
		out.Rows = append(out.Rows, svc.newListRow(who, q, m))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		out.TimedOut, err = true, nil
	}
	return out, err
}

// datedRow is a row with the time at which its message was written, and its number in the order of the scan.
type datedRow struct {
	messageRow
	written time.Time
	number  int
}

// listNewest lists the newest messages first. It reads the tail of the DLQ, and the whole DLQ only if too few of the
// tail match and there are more messages.
func (svc *service) listNewest(ctx context.Context, who Actor, q *openQueue, counted deadletter.Queue, w listQuery, out *messageList) error {
	var rows []datedRow
	keep := w.Size + w.Skip + 1
	keepNewest := func() { // a scan reads one partition after another
		slices.SortFunc(rows, func(x, y datedRow) int { return cmp.Or(y.written.Compare(x.written), cmp.Compare(y.number, x.number)) })
		rows = rows[:min(keep, len(rows))]
	}
	n := 0
	addAll := func(all iter.Seq2[*deadletter.Message, error]) error {
		for m, err := range all {
			if err != nil {
				return err
			}
			n++
			if rows = append(rows, datedRow{svc.newListRow(who, q, m), m.Time, n}); len(rows) >= 2*keep {
				keepNewest()
			}
		}
		return nil
	}
	err := addAll(deadletter.BrowseTail(ctx, counted, w.Filter))
	if err == nil && n < keep && !q.readCosts {
		all, _, uncounted := counted.Count(ctx)
		if uncounted != nil {
			all, err = q.lastCount(), ctx.Err()
		}
		if out.Scanned < all {
			rows, n, out.Scanned = nil, 0, 0
			err = addAll(deadletter.Browse(ctx, counted, w.Filter))
		}
	}
	keepNewest()
	for i := w.Skip; i < min(w.Skip+w.Size, len(rows)); i++ {
		out.Rows = append(out.Rows, rows[i].messageRow)
	}
	out.More = len(rows) > w.Skip+w.Size
	if errors.Is(err, context.DeadlineExceeded) {
		out.TimedOut, err = true, nil
	}
	return err
}

// searchesContent reports whether a filter matches by the content of messages. A user who may not see the content must
// not discover it by searching.
func searchesContent(f *deadletter.Filter) bool {
	return f.Key != nil || len(f.Headers) > 0 || f.ErrorText != "" || f.BodyText != ""
}

// newListRow returns the row of a message in a list. It keeps only the part of the key that is shown, because a list
// may have thousands of rows and a key can be as long as a message.
func (svc *service) newListRow(who Actor, q *openQueue, m *deadletter.Message) messageRow {
	r := svc.newRow(who, q, m)
	r.Key = bytes.Clone(r.Key[:min(len(r.Key), maxLine+1)])
	return r
}

func (svc *service) newRow(who Actor, q *openQueue, m *deadletter.Message) messageRow {
	r := messageRow{
		Position: m.Position, ID: m.ID, Failed: m.Failed(), Attempts: m.State.Attempts, Replays: m.State.Replays,
		Reason: m.State.Reason, Type: m.State.ErrorType, Mismatch: svc.redactQuotation(who, q.info, m.Mismatch), Size: len(m.Body), HasKey: m.Key != nil,
		Error: svc.redactErrorText(who, q.info, m.Headers, m.State.Error),
	}
	if who.Role >= RoleReader {
		r.Key, _ = svc.redact(Part{Kind: PartKey, Value: m.Key, DLQ: q.info, Headers: m.Headers})
	} else {
		r.Hidden = r.HasKey
	}
	return r
}

// messageView is one message as a user may see it.
type messageView struct {
	messageRow
	Overview    overview
	Time        time.Time
	State       redeliver.State
	Handler     string
	Writer      deadletter.Writer
	Findings    []redeliver.Finding
	Fingerprint string
	// Body is nil if null or not shown. Shown reports whether the user may see it, Whole whether no part is hidden.
	Body           []byte
	Shown, Whole   bool
	Headers        []headerView
	Foreign        []headerView
	HeadersHidden  int // number of headers that the user may not see
	HeadersOmitted int // number of headers above the limit
}

// headerView is a header as a user may see it.
type headerView struct {
	Name  string
	Value []byte
	Whole bool
}

// Null reports whether a header has no value. An empty value is not null.
func (h headerView) Null() bool { return h.Value == nil }

// readMessage returns one message. Showing a whole message is recorded.
func (svc *service) readMessage(ctx context.Context, who Actor, key string, at deadletter.Position) (*messageView, error) {
	_, here, err := svc.findQueue(who, key)
	if err != nil {
		return nil, err
	}
	r := Record{Action: ActionList, Position: at}
	if svc.checkRight(here, ActionReveal) == nil {
		r.Action = ActionReveal
	}
	q, err := svc.openFor(&who, key, r)
	if err != nil {
		return nil, err
	}
	ctx, release, err := svc.acquireRead(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	m, err := deadletter.Find(ctx, q.q, at)
	if err != nil {
		return nil, err
	}
	l := &messageView{
		messageRow: svc.newRow(who, q, m), Overview: svc.overviewOf(who, q), Time: m.Time, State: m.State, Handler: m.Handler, Writer: m.Writer,
		Findings: m.Findings, Fingerprint: deadletter.Fingerprint(m),
	}
	l.State.Error = l.messageRow.Error
	if l.State.FirstError = svc.redactErrorText(who, q.info, m.Headers, m.State.FirstError); l.State.FirstError == l.State.Error {
		l.State.FirstError = "" // what differs is not shown
	}
	if r.Action != ActionReveal {
		l.HeadersHidden = len(m.Headers) + len(m.Foreign)
		l.Findings = nil // they quote headers
		return l, nil
	}
	l.Shown = true
	l.Body, l.Whole = svc.redact(Part{Kind: PartBody, Value: m.Body, DLQ: q.info, Headers: m.Headers})
	l.Headers, l.Foreign = svc.redactHeaders(q, m, m.Headers), svc.redactHeaders(q, m, m.Foreign)
	l.HeadersOmitted = len(m.Headers) - len(l.Headers) + len(m.Foreign) - len(l.Foreign)
	if svc.cfg.Redact != nil {
		l.Findings = nil
	}
	return l, nil
}

// maxHeaders is the maximum number of headers that are shown of a message. The others are not copied: a message of 1 MB
// can have a hundred thousand.
const maxHeaders = 100

func (svc *service) redactHeaders(q *openQueue, m *deadletter.Message, headers []deadletter.Header) []headerView {
	headers = headers[:min(len(headers), maxHeaders)]
	views := make([]headerView, len(headers))
	for i, h := range headers {
		v := &views[i]
		v.Name = strings.Clone(h.Name) // do not keep the whole message in memory
		v.Value, v.Whole = svc.redact(Part{Kind: PartHeader, Name: h.Name, Value: h.Value, DLQ: q.info, Headers: m.Headers})
		v.Value = bytes.Clone(v.Value)
	}
	return views
}
