package deadletter

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// silentQueue is a DLQ whose broker stops answering after a claim.
type silentQueue struct {
	Queue
	claim *silentClaim
}

var errSilent = errors.New("the broker does not answer")

func (*silentQueue) Info() Info { return Info{DLQ: "orders.billing.dlq"} }

func (q *silentQueue) Claim(context.Context, Holder) (Claim, error)     { return q.claim, nil }
func (*silentQueue) Scan(context.Context, From) (Scan, error)           { return nil, errSilent }
func (*silentQueue) Request(context.Context, string, Request) error     { return nil }
func (*silentQueue) Holder(context.Context) (h Holder, _ bool, _ error) { return h, false, nil }
func (*silentQueue) Tasks(context.Context) ([]Task, error) {
	return []Task{{ID: "t-1", Kind: KindReplay, Status: StatusPaused}}, nil
}

// silentClaim is a claim whose release gets no answer, and whose caller's context ends at that moment.
type silentClaim struct {
	Claim
	t        *testing.T
	giveUp   context.CancelFunc
	released int
}

func (*silentClaim) Save(context.Context, Task) error         { return errSilent }
func (*silentClaim) Scan(context.Context, From) (Scan, error) { return nil, errSilent }

func (c *silentClaim) Release(ctx context.Context) error {
	c.released++
	c.giveUp()
	if err := ctx.Err(); err != nil {
		c.t.Errorf("Release got a context that has ended: %v", err)
	}
	<-ctx.Done()
	return ctx.Err()
}

// Every claim is released, and a broker that does not answer blocks nobody forever.
func TestAReleaseIsBounded(t *testing.T) {
	for name, do := range map[string]func(context.Context, Queue) error{
		"replay": func(ctx context.Context, q Queue) error {
			_, err := Replay(ctx, q, ReplayOptions{Who: "ann", Why: "a test"})
			return err
		},
		"resume": func(ctx context.Context, q Queue) error {
			_, err := Resume(ctx, q, "t-2", ResumeOptions{Who: "ann"})
			return err
		},
		"purge": func(ctx context.Context, q Queue) error {
			_, err := Purge(ctx, q, PurgeOptions{Who: "ann", Why: "a test", Everything: true, Expect: 1})
			return err
		},
		"edit": func(ctx context.Context, q Queue) error {
			_, err := Edit(ctx, q, EditOptions{Who: "ann", Why: "a test", Position: "1", Body: []byte("new")})
			return err
		},
		"import": func(ctx context.Context, q Queue) error {
			_, err := Import(ctx, q, strings.NewReader(""), ImportOptions{Who: "ann", Why: "a test"})
			return err
		},
		"cancel": func(ctx context.Context, q Queue) error { return Cancel(ctx, q, "t-1", CancelOptions{Who: "ann"}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				q := &silentQueue{claim: &silentClaim{t: t, giveUp: giveUp}}
				began := time.Now()
				err := do(ctx, q)
				if err == nil || q.claim.released != 1 {
					t.Errorf("the call returned %v, and the claim was released %d times", err, q.claim.released)
				}
				if took := time.Since(began); took > maxFinish {
					t.Errorf("it took %s to return", took)
				}
			})
		})
	}
}
