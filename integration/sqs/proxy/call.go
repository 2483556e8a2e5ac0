package proxy

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Call is one request of SQS's JSON protocol.
type Call struct {
	Action  string // SendMessageBatch
	Queue   string // the queue's name
	In      map[string]any
	Entries []map[string]any // of a batch, otherwise only In
	batch   bool
}

func parse(h http.Header, body []byte) *Call {
	c := &Call{}
	_, c.Action, _ = strings.Cut(h.Get("X-Amz-Target"), ".")
	if json.Unmarshal(body, &c.In) != nil {
		return c
	}
	c.Queue, _ = c.In["QueueName"].(string)
	if url, ok := c.In["QueueUrl"].(string); ok {
		c.Queue = url[strings.LastIndexByte(url, '/')+1:]
	}
	if !strings.HasSuffix(c.Action, "Batch") {
		c.Entries = []map[string]any{c.In}
		return c
	}
	c.batch = true
	entries, _ := c.In["Entries"].([]any)
	for _, e := range entries {
		if e, ok := e.(map[string]any); ok {
			c.Entries = append(c.Entries, e)
		}
	}
	return c
}

// fifo reports whether the queue is a FIFO queue.
func (c *Call) fifo() bool { return strings.HasSuffix(c.Queue, ".fifo") }

// marshal encodes a decoded JSON value or text.
func marshal(v map[string]any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return body
}

func text(m map[string]any, name string) string {
	s, _ := m[name].(string)
	return s
}

// problem is an error in the form of SQS.
type problem struct {
	status        int
	code, message string
}

func (e *problem) write(w http.ResponseWriter) {
	body := marshal(map[string]any{"__type": "com.amazonaws.sqs#" + e.code, "message": e.message})
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	fault := "Sender"
	if e.status >= http.StatusInternalServerError {
		fault = "Receiver"
	}
	w.Header().Set("X-Amzn-Query-Error", e.code+";"+fault)
	w.WriteHeader(e.status)
	_, _ = w.Write(body)
}
