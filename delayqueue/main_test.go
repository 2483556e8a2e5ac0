package delayqueue_test

import (
	"testing"

	"github.com/redeliver/redeliver/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
