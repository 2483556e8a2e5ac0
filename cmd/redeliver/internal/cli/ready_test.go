package cli_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// The health check of a container uses only the exit code.
func TestReadyReportsByItsExitCode(t *testing.T) {
	var status atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write([]byte("orders: not read yet\n"))
	}))
	at := server.URL + "/readyz"
	ready := func(args ...string) ending {
		t.Helper()
		return call{}.run(t, append([]string{"ready", "--timeout", maxWait.String()}, args...)...)
	}

	status.Store(http.StatusOK)
	if got := ready(at, "--output", "json").want(t, 0).object(t); got["ready"] != true {
		t.Errorf("it says %v of one that is ready", got)
	}
	status.Store(http.StatusServiceUnavailable)
	got := ready(at, "--output", "json").want(t, 3).object(t)
	if why, _ := got["why"].(string); got["ready"] != false || !strings.Contains(why, "orders: not read yet") {
		t.Errorf("it says %v of one that is not ready", got)
	}
	status.Store(http.StatusFound) // the proxy has not answered
	ready(at).want(t, 3)

	listens := "tcp://" + server.Listener.Addr().String()
	ready(listens).want(t, 0)
	server.Close()
	ready(listens).want(t, 3)
	ready(at).want(t, 3)
}

func TestReadyRefuses(t *testing.T) {
	for _, args := range [][]string{{":8081"}, {"ftp://host/"}, {"http://user:secret@host/"}, {"tcp://a:1", "tcp://b:2"}} {
		got := (call{}).run(t, append([]string{"ready"}, args...)...).want(t, 2)
		if strings.Contains(got.err, "secret") {
			t.Errorf("%q repeats the password: %s", args, got.err)
		}
	}
}
