package delayqueue_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

var origin = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
