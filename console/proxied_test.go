package console

import (
	"net/http"
	"testing"
)

// Without authentication nothing is served that came through a proxy: it is the
// proxy that is on this machine.
func TestAProxyWithoutAuthenticationIsRefused(t *testing.T) {
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	users, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Auth: as(Viewer)})
	if err != nil {
		t.Fatal(err)
	}
	defer users.Close()
	for header, value := range map[string]string{
		"X-Forwarded-For": "192.0.2.1", "Forwarded": "for=192.0.2.1", "X-Real-IP": "192.0.2.1", "Via": "1.1 proxy", "X-Forwarded-Host": "console.example", "x-forwarded-proto": "https",
	} {
		for _, target := range []string{"/", page("dlq", newStub("q", 1)), "/tasks", "/assets/console.css"} {
			a := ask(t, c, http.MethodGet, target, nil, header, value)
			if a.StatusCode != http.StatusForbidden {
				t.Errorf("%s with %s is %d", target, header, a.StatusCode)
			}
			a.has(t, "A proxy stands before this console", "--behind-proxy", "Config.Auth")
		}
		get(t, users, "/", header, value)
	}
}
