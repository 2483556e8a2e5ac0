package console

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/redelivertest"
)

// A decoder may make much of a body: 20 MB once became 4.9 GB, and four pages were decoded at once.
func TestDecodingIsBounded(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		large, most := strings.Repeat("x", maxDecodeBody+1), strings.Repeat("x", maxDecodeBody)
		s := newShop(t, b, failingMessage("o-1", "closed", large), failingMessage("o-2", "closed", most), failingMessage("o-3", "closed", "\x00"))
		var calls, running atomic.Int32
		decode := func(_ context.Context, body []byte, _ []deadletter.Header) (Decoded, error) {
			calls.Add(1)
			if running.Add(1) > 1 {
				t.Error("two bodies are decoded at once")
			}
			<-time.After(time.Second)
			defer running.Add(-1)
			if len(body) == maxDecodeBody {
				return Decoded{JSON: []byte(`{"sum":110}`)}, nil
			}
			return Decoded{JSON: append(append([]byte{'"'}, bytes.Repeat([]byte("y"), maxDecoded)...), '"')}, nil
		}
		c := open(t, b, Config{Queues: []Queue{{Queue: s.queue}}, Audit: &auditLog{}, Decode: decode})
		for id, want := range map[string]string{"o-1": "a body of 262145 bytes is not decoded", "o-2": `"sum": 110`, "o-3": "its JSON has 1048578 bytes"} {
			get(t, c, page("message", s.queue, "at", where(t, s.queue, id))).has(t, want)
		}
		if calls.Load() != 2 {
			t.Errorf("the decoder was called %d times", calls.Load())
		}
		at := page("message", s.queue, "at", where(t, s.queue, "o-2"))
		var pages sync.WaitGroup
		for range 3 {
			pages.Go(func() { ask(t, c, http.MethodGet, at, nil) })
		}
		pages.Wait()
		if calls.Load() < 4 {
			t.Errorf("the decoder was called %d times", calls.Load())
		}
	})
}
