package middleware_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redeliver/redeliver/redelivertest"
)

// exampleTB has the methods of a test that New needs in an example.
type exampleTB struct {
	testing.TB
	ends []func()
}

func (*exampleTB) Helper()                        {}
func (e *exampleTB) Cleanup(end func())           { e.ends = append(e.ends, end) }
func (e *exampleTB) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (e *exampleTB) Fatalf(form string, a ...any) { panic(fmt.Sprintf(form, a...)) }

// newBroker starts a broker in memory for an example. In a test, use redelivertest.Run.
func newBroker() (b *redelivertest.Broker, end func()) {
	tb := &exampleTB{}
	return redelivertest.New(tb), func() {
		for _, end := range slices.Backward(tb.ends) {
			end()
		}
	}
}
