package delayqueue_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var origin = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
