package actor_test

import (
	"strings"
	"testing"

	"github.com/redeliver/redeliver/internal/actor"
)

func TestANameInTheContextCounts(t *testing.T) {
	t.Parallel()
	process := actor.Of(t.Context())
	if name, host, ok := strings.Cut(process, "@"); !ok || name == "" || host == "" {
		t.Errorf("without a name it is %q", process)
	}
	if got := actor.Of(actor.With(t.Context(), "ann@ops")); got != "ann@ops" {
		t.Errorf("with a name it is %q", got)
	}
	if got := actor.Of(actor.With(t.Context(), "")); got != process {
		t.Errorf("with an empty name it is %q", got)
	}
}
