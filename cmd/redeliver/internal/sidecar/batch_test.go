package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
)

// answered are the answers in their order.
type answered []string

func (a *answered) answer(i int, err error) { *a = append(*a, fmt.Sprintf("%d %s", i, inWords(err))) }

// inWords formats an answer for comparison.
func inWords(err error) string {
	var words []string
	if after, ok := errors.AsType[*redeliver.RetryAfterError](err); ok {
		words = append(words, after.After.String())
	}
	for name, is := range map[string]error{"rejected": redeliver.ErrRejected, "postponed": redeliver.ErrPostponed} {
		if errors.Is(err, is) {
			words = append(words, name)
		}
	}
	if errors.Is(err, redeliver.ErrPermanent) && !errors.Is(err, redeliver.ErrRejected) {
		words = append(words, "permanent")
	}
	if err == nil {
		return "ack"
	}
	return strings.Join(append(words, err.Error()), " ")
}

// The request equals the document in docs/reference/sidecar.md, byte for byte.
func TestBatchRequest(t *testing.T) {
	text := &Message{
		State: redeliver.State{ID: "orders/0/17", Origin: "orders", Group: "billing"}, Key: []byte("o-1"), Body: []byte(`{"sum": 12345678901234567890, "note": "<ü>"}`),
		Timestamp: noon, ContentType: "application/json", Headers: []Header{{"tenant", "acme"}, {"tenant", "\xff"}}, Properties: []Header{{"Partition", "0"}},
	}
	bytes := &Message{State: redeliver.State{ID: "b", Attempts: 2, Origin: "orders", Group: "billing", FirstFailed: noon, Replays: 1, Error: "declined", FirstError: "timed out"}, Key: []byte{255}, Body: []byte{0, 255}}
	null := &Message{State: redeliver.State{ID: "c", Origin: "orders", Group: "billing"}, Key: []byte{}, Null: true}
	got, err := encodeBatch([]*Message{text, bytes, null})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"origin":"orders","group":"billing","messages":[` +
		`{"id":"orders/0/17","attempt":1,"origin":"orders","group":"billing","timestamp":"2026-01-31T12:00:00.000Z","key_text":"o-1","content_type":"application/json",` +
		`"headers":[{"name":"tenant","text":"acme"},{"name":"tenant","value":"/w=="}],"properties":[{"name":"partition","text":"0"}],` +
		`"body_text":"{\"sum\": 12345678901234567890, \"note\": \"<ü>\"}"},` +
		`{"id":"b","attempt":3,"origin":"orders","group":"billing","first_failed":"2026-01-31T12:00:00.000Z","error":"declined","first_error":"timed out","replays":1,"key":"/w==","headers":[],"body":"AP8="},` +
		`{"id":"c","attempt":1,"origin":"orders","group":"billing","key_text":"","headers":[],"null":true}]}` + "\n"
	if string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestBatchAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string // of three messages
		err  string   // of all
	}{
		"nothing":      {text: ""},
		"white":        {text: " \n"},
		"none":         {text: `{"answers":[]}`},
		"each":         {text: `{"answers":[{"index":2,"answer":"reject","reason":"no card"},{"index":0,"answer":"ack"},{"index":1,"answer":"retry","delay":"1m30s","reason":"busy"}]}`, want: []string{"2 rejected rejected: no card", "0 ack", "1 1m30s busy"}},
		"no delay":     {text: `{"answers":[{"index":1,"answer":"retry"}]}`, want: []string{"1 the handler asked for a retry"}},
		"at once":      {text: `{"answers":[{"index":1,"answer":"retry","delay":"0s"}]}`, want: []string{"1 0s the handler asked for a retry"}},
		"more fields":  {text: `{"answers":[{"index":1,"answer":"ack","took":7}],"node":"a"}`, want: []string{"1 ack"}},
		"bad entries":  {text: `{"answers":[{"index":0,"answer":"done"},{"index":1,"answer":"retry","delay":"soon"},{"index":2,"answer":"retry","delay":"-1s"}]}`, want: []string{`0 the handler's answer: "done" must be ack, retry or reject`, `1 the handler's answer: the delay "soon" is not between 0s and 8784h0m0s`, `2 the handler's answer: the delay "-1s" is not between 0s and 8784h0m0s`}},
		"forever":      {text: `{"answers":[{"index":0,"answer":"retry","delay":"2000000h"}]}`, want: []string{`0 the handler's answer: the delay "2000000h" is not between 0s and 8784h0m0s`}},
		"no JSON":      {text: "ok", err: "not the expected JSON"},
		"half":         {text: `{"answers":[{"index":0,"answer":"ack"}`, err: "not the expected JSON"},
		"other JSON":   {text: `{"status":"ok"}`, err: `has no "answers"`},
		"null":         {text: "null", err: `has no "answers"`},
		"no index":     {text: `{"answers":[{"index":0,"answer":"ack"},{"answer":"ack"}]}`, err: "has no index"},
		"beyond":       {text: `{"answers":[{"index":0,"answer":"ack"},{"index":3,"answer":"ack"}]}`, err: "index 3 is not between 0 and 2"},
		"below":        {text: `{"answers":[{"index":-1,"answer":"ack"}]}`, err: "index -1 is not"},
		"twice":        {text: `{"answers":[{"index":1,"answer":"ack"},{"index":1,"answer":"retry"}]}`, err: "index 1 appears twice"},
		"wrong types":  {text: `{"answers":[{"index":"1","answer":"ack"}]}`, err: "not the expected JSON"},
		"no list":      {text: `{"answers":{"1":"ack"}}`, err: "not the expected JSON"},
		"two of them":  {text: `{"answers":[]}{"answers":[]}`, err: "not the expected JSON"},
		"not an index": {text: `{"answers":[{"index":0.5,"answer":"ack"}]}`, err: "not the expected JSON"},
	} {
		var got answered
		err := decodeAnswers([]byte(c.text), 3, got.answer)
		if !slices.Equal(got, answered(c.want)) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
	}
}

// bodies returns what was posted to a batch's handler.
func bodies(t *testing.T, r *http.Request) (all []string) {
	t.Helper()
	var req batchRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || r.Header.Get("Content-Type") != "application/json" || req.Origin != "orders" {
		t.Errorf("%v, %+v", err, req)
	}
	for _, m := range req.Messages {
		all = append(all, *m.BodyText)
	}
	return all
}

func batchOf(texts ...string) (all []*Message) {
	for _, text := range texts {
		all = append(all, &Message{State: redeliver.State{ID: text, Origin: "orders", Group: "billing"}, Body: []byte(text)})
	}
	return all
}

// A batch that is refused as a whole is posted again, each message alone, so that one bad message does not dead-letter
// others. Any other failure applies to all.
func TestABatchThatIsRefused(t *testing.T) {
	t.Parallel()
	var posts []string
	h, _ := handlerAt(t, HTTPConfig{}, func(w http.ResponseWriter, r *http.Request) {
		all := bodies(t, r)
		posts = append(posts, strings.Join(all, " "))
		switch {
		case slices.Contains(all, "busy"):
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusTooManyRequests)
		case slices.Contains(all, "bad"):
			http.Error(w, "no such card", http.StatusUnprocessableEntity)
		case slices.Contains(all, "asks"):
			_, _ = io.WriteString(w, `{"answers":[{"index":0,"answer":"retry","reason":"later"}]}`)
		case slices.Contains(all, "gone"):
			panic(http.ErrAbortHandler)
		}
	})
	for _, c := range []struct {
		name string
		all  []*Message
		want []string
		err  string
	}{
		{"good", batchOf("a", "b"), nil, "ack"},
		{"bad among others", batchOf("a", "bad", "asks", "b"), []string{"0 ack", "1 permanent the handler answered 422 Unprocessable Entity: no such card", "2 later", "3 ack"}, "ack"},
		{"bad alone", batchOf("bad"), nil, "permanent the handler answered 422 Unprocessable Entity: no such card"},
		{"busy", batchOf("a", "busy"), nil, "30s the handler answered 429 Too Many Requests"},
	} {
		posts = nil
		var got answered
		err := h.HandleBatch(t.Context(), c.all, got.answer)
		if words := inWords(err); words != c.err || !slices.Equal(got, answered(c.want)) {
			t.Errorf("%s: %q and %q, want %q and %q, after %q", c.name, words, got, c.err, c.want, posts)
		}
	}
	var got answered
	if err := h.HandleBatch(t.Context(), batchOf("a", "gone"), got.answer); err == nil || errors.Is(err, redeliver.ErrPermanent) || len(got) > 0 {
		t.Errorf("it ends too early: %v, %q", err, got)
	}
}

// A handler that disconnects between the posts has not received the rest.
func TestABatchWhoseHandlerDisconnects(t *testing.T) {
	t.Parallel()
	posts := 0
	var disconnect func()
	h, server := handlerAt(t, HTTPConfig{}, func(w http.ResponseWriter, r *http.Request) {
		bodies(t, r)
		if posts++; posts == 2 {
			disconnect()
		}
		w.WriteHeader(http.StatusBadRequest)
	})
	disconnect = func() {
		_ = server.Listener.Close()
		server.Config.SetKeepAlivesEnabled(false)
	}
	var got answered
	if err := h.HandleBatch(t.Context(), batchOf("a", "b"), got.answer); err != nil || len(got) != 2 || !strings.HasPrefix(got[0], "0 permanent") || !strings.HasPrefix(got[1], "1 postponed") {
		t.Errorf("%v, %q", err, got)
	}
}

// An answer that is too long or incomplete is not an answer.
func TestABatchWithHalfAnAnswer(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]http.HandlerFunc{
		"longer": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"answers":[],"x":"`+strings.Repeat("x", int(maxAnswer(1)))+`"}`)
		},
		"ends too early": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"answers":[]}`)
		},
	} {
		h, _ := handlerAt(t, HTTPConfig{}, func(w http.ResponseWriter, r *http.Request) {
			bodies(t, r)
			serve(w, r)
		})
		var got answered
		if err := h.HandleBatch(t.Context(), batchOf("a"), got.answer); err == nil || !strings.Contains(err.Error(), "it "+strings.Replace(name, "longer", "is longer", 1)) || len(got) > 0 {
			t.Errorf("%s: %v, %q", name, err, got)
		}
	}
}
