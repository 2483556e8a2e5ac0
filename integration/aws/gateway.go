package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// gateway is an SQS server for the tests. It passes their requests on to a real one: it signs them, adds its prefix to
// the name of every queue, counts them, and refuses them when their number reaches the bound. So the tests need no
// credentials, and cannot touch queues of others.
type gateway struct {
	target      string // https://sqs.REGION.amazonaws.com
	region      string
	prefix      string // of all queues
	credentials aws.CredentialsProvider
	bound       int
	exhausted   func() // is called when the bound is reached

	client *http.Client
	server *http.Server
	url    string

	mu       sync.Mutex
	cleaning bool            // the bound does not apply
	queues   map[string]bool // created and not deleted, by the names that the tests use
	requests map[string]int  // by action
	billed   billed
}

// billed is what AWS charges for: each 64 KiB of a request's payload counts as a request.
type billed struct{ standard, fifo int }

func (b billed) total() int { return b.standard + b.fifo }

const chunk = 64 << 10

// managed are the actions that a gateway passes on whose answers name queues.
var managed = []string{"CreateQueue", "GetQueueUrl", "ListQueues", "ListDeadLetterSourceQueues", "GetQueueAttributes", "SetQueueAttributes", "DeleteQueue", "PurgeQueue"}

// others are the other ones that it passes on. It refuses the rest.
var others = []string{
	"TagQueue", "UntagQueue", "ListQueueTags", "SendMessage", "SendMessageBatch", "ReceiveMessage", "DeleteMessage", "DeleteMessageBatch", "ChangeMessageVisibility", "ChangeMessageVisibilityBatch",
}

// start begins to listen on a loopback port.
func (g *gateway) start(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for the tests: %w", err)
	}
	g.url = "http://" + l.Addr().String()
	g.queues, g.requests = make(map[string]bool), make(map[string]int)
	g.client = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 256, IdleConnTimeout: 50 * time.Second, DisableCompression: true}}
	g.server = &http.Server{Handler: g, ReadHeaderTimeout: time.Minute}
	go func() { _ = g.server.Serve(l) }()
	return nil
}

func (g *gateway) close() {
	_ = g.server.Close()
	g.client.CloseIdleConnections()
}

// ServeHTTP passes one request on.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if !slices.Contains(managed, action) && !slices.Contains(others, action) {
		refuse(w, "UnsupportedOperation", "the gateway of the tests passes on no "+action)
		return
	}
	body, queue, err := g.withPrefix(body)
	if err != nil {
		refuse(w, "InvalidParameterValue", err.Error())
		return
	}
	if !g.count(action, queue, len(body)) {
		g.exhausted()
		refuse(w, "RequestThrottled", fmt.Sprintf("the bound of %d requests is reached", g.bound))
		return
	}
	status, header, answer, err := g.pass(r, body)
	if err != nil {
		panic(http.ErrAbortHandler) // the connection ends, as that to the server did
	}
	g.follow(action, queue, status, len(body), len(answer))
	if slices.Contains(managed, action) {
		answer = g.withoutPrefix(answer)
	}
	for _, name := range []string{"Content-Type", "X-Amzn-Query-Error", "X-Amzn-Requestid", "Retry-After"} {
		if v := header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.WriteHeader(status)
	_, _ = w.Write(answer) //nolint:gosec // No browser reads it.
}

// withPrefix adds the prefix to the names of queues in a request, and returns the queue's own name.
func (g *gateway) withPrefix(body []byte) (changed []byte, queue string, err error) {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, "", fmt.Errorf("the request is no JSON object: %w", err)
	}
	for _, field := range []string{"QueueUrl", "QueueName"} {
		raw, ok := in[field]
		if !ok {
			continue
		}
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, "", fmt.Errorf("%s: %w", field, err)
		}
		at := strings.LastIndexByte(text, '/') + 1
		queue = text[at:]
		in[field] = quoted(text[:at] + g.prefix + queue)
	}
	if _, ok := in["QueueUrl"]; !ok && queue == "" { // ListQueues
		var wanted string
		_ = json.Unmarshal(in["QueueNamePrefix"], &wanted)
		in["QueueNamePrefix"] = quoted(g.prefix + wanted)
	}
	if attributes, ok := in["Attributes"]; ok { // a DLQ is named by its ARN
		in["Attributes"] = arn.ReplaceAll(attributes, []byte("${1}"+g.prefix))
	}
	changed, err = json.Marshal(in)
	return changed, queue, err
}

// withoutPrefix removes the prefix from URLs and ARNs in an answer that has no messages.
func (g *gateway) withoutPrefix(answer []byte) []byte {
	for _, before := range []string{"/", ":"} {
		answer = bytes.ReplaceAll(answer, []byte(before+g.prefix), []byte(before))
	}
	return answer
}

func quoted(s string) json.RawMessage {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string never fails
	}
	return raw
}

// count counts a request, and reports whether it is within the bound.
func (g *gateway) count(action, queue string, size int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.cleaning && g.billed.total()+chunks(size) > g.bound {
		return false
	}
	g.requests[action]++
	g.addLocked(queue, chunks(size))
	if action == "CreateQueue" { // even without an answer the queue may be created
		g.queues[queue] = true
	}
	return true
}

// follow counts an answer that is larger than its request, and remembers which queues there are.
func (g *gateway) follow(action, queue string, status, sent, received int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addLocked(queue, max(0, chunks(received)-chunks(sent)))
	if action == "DeleteQueue" && status == http.StatusOK {
		delete(g.queues, queue)
	}
}

func (g *gateway) addLocked(queue string, n int) {
	if strings.HasSuffix(queue, ".fifo") {
		g.billed.fifo += n
	} else {
		g.billed.standard += n
	}
}

func chunks(size int) int { return max(1, (size+chunk-1)/chunk) }

// pass signs a request, sends it, and returns the answer.
func (g *gateway) pass(r *http.Request, body []byte) (status int, header http.Header, answer []byte, err error) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, g.target+"/", bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	for _, name := range []string{"Content-Type", "X-Amz-Target", "X-Amzn-Query-Mode"} {
		if v := r.Header.Get(name); v != "" {
			req.Header.Set(name, v)
		}
	}
	who, err := g.credentials.Retrieve(r.Context())
	if err != nil {
		return 0, nil, nil, err
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(r.Context(), who, req, hex.EncodeToString(sum[:]), "sqs", g.region, time.Now()); err != nil {
		return 0, nil, nil, err
	}
	resp, err := g.client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, answer, err
}

// refuse answers with an error in the form of SQS.
func refuse(w http.ResponseWriter, code, message string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("X-Amzn-Query-Error", code+";Sender")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = fmt.Fprintf(w, `{"__type":"com.amazonaws.sqs#%s","message":%s}`, code, quoted(message)) //nolint:gosec // No browser reads it.
}

// made returns the requests by action, and what of them is billed.
func (g *gateway) made() (map[string]int, billed) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.requests), g.billed
}

// left returns the queues that the tests created and did not delete.
func (g *gateway) left() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cleaning = true
	return slices.Sorted(maps.Keys(g.queues))
}
