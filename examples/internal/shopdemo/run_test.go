package shopdemo

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/examples/internal/screen"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// Without a broker the error comes at once. Watermill waits half a minute for the end of a router that has never run.
func TestRunDoesNotWaitForARouterThatNeverRan(t *testing.T) {
	unreachable := errors.New("nobody answers")
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer nowhere.Close()
	r := &run{screen: screen.New(nowhere, time.Now(), "orders"), outcomes: newOutcomes()}
	r.Open = func(context.Context, brokerurl.URL, redeliver.Sink, watermill.LoggerAdapter) (*Shop, error) {
		router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
		return &Shop{
			Router:   router,
			Describe: func(context.Context) (string, error) { return "", unreachable },
			Close:    func(context.Context) error { t.Error("the shop was closed, which waits for its router"); return nil },
		}, err
	}
	if err := r.run(t.Context()); !errors.Is(err, unreachable) {
		t.Errorf("run returned %v, want %v", err, unreachable)
	}
}
