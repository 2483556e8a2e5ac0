package sidecar

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"testing"

	"github.com/redeliver/redeliver"
)

func typical() *Message {
	return &Message{
		State: redeliver.State{ID: "be9c4000-0000-4000-8000-000000000001", Origin: "orders", Group: "billing"}, Key: []byte("key-00001"), Body: make([]byte, 1024),
		Timestamp: noon, Headers: []Header{{"_watermill_message_uuid", "be9c4000-0000-4000-8000-000000000001"}}, Properties: []Header{{"Partition", "0"}, {"Offset", "17"}},
	}
}

func BenchmarkRequestHeader(b *testing.B) {
	m := typical()
	b.ReportAllocs()
	for b.Loop() {
		requestHeader(m)
	}
}

// Both sides of a post run in one process.
func BenchmarkHTTP(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		b.Fatal(err)
	}
	h := NewHTTP(HTTPConfig{URL: u, Requests: 100})
	m := typical()
	b.ReportAllocs()
	b.SetParallelism(50)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := h.Handle(b.Context(), m); err != nil {
				b.Error(err)
			}
		}
	})
}

// A command that does nothing runs repeatedly.
func BenchmarkExec(b *testing.B) {
	program, err := exec.LookPath("true")
	if err != nil {
		b.Skip("this system has no command true")
	}
	e, err := NewExec([]string{program}, os.Environ(), nil, func(string, string) {})
	if err != nil {
		b.Fatal(err)
	}
	m := typical()
	for b.Loop() {
		if err := e.Handle(b.Context(), m); err != nil {
			b.Fatal(err)
		}
	}
}
