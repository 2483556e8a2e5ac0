package loss

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sqsTransport shows an SQS client's traffic to the watcher: sent messages before they leave, received and confirmed
// messages before the client reads them, and the runs that a deletion settles before it leaves.
type sqsTransport struct {
	watcher *watcher
	next    http.RoundTripper

	mu      sync.Mutex
	unsent  map[string]run // by receipt: the undeleted runs
	inOrder []string       // receipts, the oldest first, of which few are never deleted
}

func newSQSTransport(s *watcher) *sqsTransport {
	return &sqsTransport{watcher: s, next: &http.Transport{MaxIdleConnsPerHost: 100}, unsent: make(map[string]run)}
}

// maxReceipts bounds the number of remembered messages that are never deleted here.
const maxReceipts = 20_000

// sqsMessage is a message in requests and answers.
type sqsMessage struct {
	MessageID         string                  `json:"MessageId"`
	ReceiptHandle     string                  `json:"ReceiptHandle"`
	Attributes        map[string]string       `json:"Attributes"`
	MessageAttributes map[string]sqsAttribute `json:"MessageAttributes"`
}

// sqsQueue is the queue of a request.
type sqsQueue struct {
	URL string `json:"QueueUrl"`
}

func (q sqsQueue) name() string { return q.URL[strings.LastIndexByte(q.URL, '/')+1:] }

type sqsAttribute struct {
	StringValue string `json:"StringValue"`
}

// RoundTrip implements [http.RoundTripper].
func (t *sqsTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	_, action, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	_ = req.Body.Close()
	req.Body = io.NopCloser(bytes.NewReader(body))
	sends := strings.HasPrefix(action, "SendMessage")
	if sends || strings.HasPrefix(action, "DeleteMessage") {
		t.leaving(body, sends)
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil || !sends && action != "ReceiveMessage" || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	if sends {
		t.watcher.answer()
		return resp, nil
	}
	var in struct {
		Messages []sqsMessage `json:"Messages"`
	}
	if json.Unmarshal(answer, &in) == nil {
		var from sqsQueue
		_ = json.Unmarshal(body, &from) // the adapter wrote it
		for _, m := range in.Messages {
			t.came(m, from.name())
		}
	}
	return resp, nil
}

// leaving reports a request that sends or deletes to the watcher.
func (t *sqsTransport) leaving(body []byte, sends bool) {
	var in struct {
		sqsMessage
		sqsQueue
		Entries []sqsMessage `json:"Entries"`
	}
	if json.Unmarshal(body, &in) != nil {
		return
	}
	entries := in.Entries
	if entries == nil {
		entries = []sqsMessage{in.sqsMessage}
	}
	if sends {
		for _, e := range entries {
			if r, _, _ := sqsRun(e); r.id != "" {
				t.watcher.send(r, in.name(), nil)
			}
		}
		return
	}
	var runs []run
	t.mu.Lock()
	for _, e := range entries {
		if r, ok := t.unsent[e.ReceiptHandle]; ok {
			runs = append(runs, r)
			delete(t.unsent, e.ReceiptHandle)
		}
	}
	t.mu.Unlock()
	t.watcher.acking(runs)
}

// came reports a message that was received from a queue to the watcher.
func (t *sqsTransport) came(m sqsMessage, queue string) {
	r, redeliverID, due := sqsRun(m)
	if r.id == "" {
		return
	}
	r.attempt++ // the next attempt
	t.mu.Lock()
	t.unsent[m.ReceiptHandle] = r
	t.inOrder = append(t.inOrder, m.ReceiptHandle)
	if len(t.inOrder) > maxReceipts {
		delete(t.unsent, t.inOrder[0])
		t.inOrder = t.inOrder[1:]
	}
	t.mu.Unlock()
	// The message has one of these ids.
	for _, id := range []string{r.id, m.MessageID, redeliverID} {
		t.watcher.setID(id, r.id)
	}
	if receives, _ := strconv.Atoi(m.Attributes["ApproximateReceiveCount"]); receives > 1 && strings.HasSuffix(queue, "-suspects") {
		t.watcher.protect(r)
	}
	if !due.IsZero() {
		t.watcher.addWaiting(r, due)
	}
}

// sqsRun returns the attempts, redeliver's id and the due time in the attributes.
func sqsRun(m sqsMessage) (r run, redeliverID string, due time.Time) {
	r.id = m.MessageAttributes[headerID].StringValue
	st, err := parseSQSState(m.MessageAttributes["redeliver"].StringValue)
	if err != nil {
		return r, "", due // it has none
	}
	r.attempt, _ = strconv.Atoi(st.fields["attempt"]) // 0 when it is missing
	due, _ = time.Parse(time.RFC3339Nano, st.fields["due"])
	return r, st.fields["id"], due
}
