package amqp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/internal/engine"
)

// A refused start reads none of several queues, because fetched messages would come back with a raised count.
func TestRefusedStartReadsNothing(t *testing.T) {
	for denied, want := range map[string]string{
		"b":       "user for b (",
		"a.retry": "user for a.retry (",
		"":        "",
	} {
		t.Run("denied "+denied, func(t *testing.T) {
			w := amqptest.NewServer(t)
			w.Denied = denied
			cfg := Config{}.withDefaults()
			cfg.URLs, cfg.AMQP.Dial = []string{"amqp://guest:guest@localhost/"}, w.Dialer(t)
			c := &client{cfg: cfg, turn: engine.NewTurn(), consuming: link.New(cfg.link("test", true))}
			var readers []*reader
			for _, queue := range []string{"a", "b"} {
				l, err := newLayout(&cfg, queue)
				if err != nil {
					t.Fatal(err)
				}
				r := newReader(context.Background(), c, l)
				r.queues = r.queueConfigs()
				readers = append(readers, r)
			}
			err := c.openFirstChannels(t.Context(), readers...)
			close(w.Read)
			var read []string
			for queue := range w.Read {
				read = append(read, queue)
			}
			if want == "" {
				if err != nil || len(read) < 4 || !slices.Equal(read[len(read)-2:], []string{"a", "b"}) {
					t.Errorf("read %q, %v", read, err)
				}
				return
			}
			refused, ok := errors.AsType[*redeliver.ConfigError](err)
			if !ok || len(refused.Problems) != 1 || !strings.Contains(refused.Problems[0].String(), want) {
				t.Errorf("%v, want one problem with %q", err, want)
			}
			if len(read) > 0 {
				t.Errorf("read %q", read)
			}
		})
	}
}
