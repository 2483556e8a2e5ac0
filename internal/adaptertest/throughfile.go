package adaptertest

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/redeliver/redeliver/deadletter"
)

// ThroughFile writes a message of a DLQ into a file, as an export does, and returns what an import into the same DLQ reads from it.
func ThroughFile(ctx context.Context, info deadletter.Info, m *deadletter.Message) (*deadletter.Message, error) {
	var file bytes.Buffer
	q := &oneMessage{info: info, m: m}
	if _, err := deadletter.Export(ctx, q, deadletter.Filter{}, &file); err != nil {
		return nil, err
	}
	_, err := deadletter.Import(ctx, q, &file, deadletter.ImportOptions{Who: "ann", Why: "test"})
	if err == nil && q.added == nil {
		err = errors.New("nothing was imported")
	}
	return q.added, err
}

// oneMessage is a DLQ with one message. It keeps the one that is added.
type oneMessage struct {
	deadletter.Queue
	info     deadletter.Info
	m, added *deadletter.Message
}

func (q *oneMessage) Info() deadletter.Info { return q.info }

func (q *oneMessage) Scan(context.Context, deadletter.From) (deadletter.Scan, error) { return q, nil }

func (q *oneMessage) Next(context.Context, func(*deadletter.Message) bool) (m *deadletter.Message, err error) {
	if q.m == nil {
		return nil, io.EOF
	}
	m, q.m = q.m, nil
	return m, nil
}

func (q *oneMessage) Close() error { return nil }

func (q *oneMessage) Claim(context.Context, deadletter.Holder) (deadletter.Claim, error) {
	return oneClaim{q: q}, nil
}

type oneClaim struct {
	deadletter.Claim
	q *oneMessage
}

func (oneClaim) Save(context.Context, deadletter.Task) error { return nil }
func (oneClaim) Release(context.Context) error               { return nil }

func (oneClaim) Requested(context.Context, string) (deadletter.Request, error) {
	return deadletter.RequestNone, nil
}

func (c oneClaim) Add(_ context.Context, all []*deadletter.Message) []error {
	for _, m := range all {
		c.q.added = m
	}
	return make([]error, len(all))
}
