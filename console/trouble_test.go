package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A message is reported as unchanged only if that is known.
func TestOnlyUnchangedMessagesAreReportedAsUnchanged(t *testing.T) {
	late := context.DeadlineExceeded
	for name, row := range map[string]struct {
		method    string
		err       error
		status    int
		unchanged bool
	}{
		"a page":                    {http.MethodGet, late, http.StatusGatewayTimeout, true},
		"a form":                    {http.MethodPost, late, http.StatusGatewayTimeout, false},
		"a form, before it is done": {http.MethodPost, &unchangedError{late}, http.StatusGatewayTimeout, true},
		"no turn to look":           {http.MethodPost, errBusy, http.StatusServiceUnavailable, true},
	} {
		c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 0)}}})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		c.showError(w, httptest.NewRequestWithContext(t.Context(), row.method, "/task", nil), row.err)
		c.Close()
		if said := strings.Contains(w.Body.String(), "Nothing was changed"); w.Code != row.status || said != row.unchanged {
			t.Errorf("%s is %d, and said to have changed nothing: %v", name, w.Code, said)
		}
	}
}
