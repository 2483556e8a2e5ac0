package sqsfake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// Call is one request of SQS's JSON protocol.
type Call struct {
	Connection string // the name of the client's connection
	Action     string // such as SendMessageBatch
	Queue      string // the queue's name; empty for an action without a queue
	In         map[string]any
	Entries    []map[string]any // of a batch, otherwise only In
	Batch      bool
}

// ParseCall reads a request.
func ParseCall(h http.Header, body []byte) (*Call, error) {
	c := &Call{}
	_, c.Action, _ = strings.Cut(h.Get("X-Amz-Target"), ".")
	if err := json.Unmarshal(body, &c.In); err != nil {
		return nil, fmt.Errorf("the request %s is no JSON: %w", c.Action, err)
	}
	c.Queue = text(c.In, "QueueName")
	if url, ok := c.In["QueueUrl"].(string); ok {
		c.Queue = url[strings.LastIndexByte(url, '/')+1:]
	}
	if !strings.HasSuffix(c.Action, "Batch") {
		c.Entries = []map[string]any{c.In}
		return c, nil
	}
	c.Batch = true
	entries, _ := c.In["Entries"].([]any)
	for _, e := range entries {
		e, _ := e.(map[string]any)
		c.Entries = append(c.Entries, e)
	}
	return c, nil
}

// fifo reports whether the queue is a FIFO queue.
func (c *Call) fifo() bool { return IsFIFO(c.Queue) }

// IsFIFO reports whether a queue is a FIFO queue, by its name.
func IsFIFO(queue string) bool { return strings.HasSuffix(queue, ".fifo") }

func text(m map[string]any, name string) string {
	s, _ := m[name].(string)
	return s
}

// texts returns the strings of a list.
func texts(m map[string]any, name string) (all []string) {
	list, _ := m[name].([]any)
	for _, v := range list {
		s, _ := v.(string)
		all = append(all, s)
	}
	return all
}

// textMap returns the strings of a map.
func textMap(m map[string]any, name string) map[string]string {
	given, _ := m[name].(map[string]any)
	all := make(map[string]string, len(given))
	for k := range given {
		all[k] = text(given, k)
	}
	return all
}

// Refusal is an error answer of SQS.
type Refusal struct {
	Status        int
	Code, Message string
}

func refuse(code, format string, args ...any) *Refusal {
	return &Refusal{http.StatusBadRequest, code, fmt.Sprintf(format, args...)}
}

var temporary = regexp.MustCompile(`Internal|Throttl|Unavailable`)

// isTemporary reports whether the sender is not at fault.
func (r *Refusal) isTemporary() bool { return temporary.MatchString(r.Code) }

// queryCodes are the codes that AWS used before it had the JSON protocol, where they differ. An answer has both.
var queryCodes = map[string]string{
	"QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue", "QueueNameExists": "QueueAlreadyExists",
	"QueueDeletedRecently": "AWS.SimpleQueueService.QueueDeletedRecently", "PurgeQueueInProgress": "AWS.SimpleQueueService.PurgeQueueInProgress",
	"BatchEntryIdsNotDistinct": "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", "BatchRequestTooLong": "AWS.SimpleQueueService.BatchRequestTooLong",
	"EmptyBatchRequest": "AWS.SimpleQueueService.EmptyBatchRequest", "InvalidBatchEntryId": "AWS.SimpleQueueService.InvalidBatchEntryId",
	"TooManyEntriesInBatchRequest": "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", "UnsupportedOperation": "AWS.SimpleQueueService.UnsupportedOperation",
}

// Write writes the refusal as SQS does.
func (r *Refusal) Write(w http.ResponseWriter) {
	body := r.encode(w.Header())
	w.WriteHeader(r.Status)
	_, _ = w.Write(body)
}

func (r *Refusal) response(req *http.Request, header http.Header) *http.Response {
	body := r.encode(header)
	return response(req, r.Status, header, body)
}

// encode sets the headers of a refusal and returns its body.
func (r *Refusal) encode(header http.Header) []byte {
	code, fault := r.Code, "Sender"
	if query, ok := queryCodes[code]; ok {
		code = query
	}
	if r.Status >= http.StatusInternalServerError {
		fault = "Receiver"
	}
	header.Set("Content-Type", "application/x-amz-json-1.0")
	header.Set("X-Amzn-Query-Error", code+";"+fault)
	body, err := json.Marshal(map[string]string{"__type": "com.amazonaws.sqs#" + r.Code, "message": r.Message})
	if err != nil {
		panic(err) // a map of strings never fails
	}
	return body
}
