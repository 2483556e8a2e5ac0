package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// batchRequest is the body of a request with a batch.
type batchRequest struct {
	Origin   string        `json:"origin"`
	Group    string        `json:"group"`
	Messages []jsonMessage `json:"messages"`
}

// batchAnswers are a handler's answers to a batch.
type batchAnswers struct {
	Answers *[]batchAnswer `json:"answers"`
}

// batchAnswer is the answer to one message.
type batchAnswer struct {
	Index  *int   `json:"index"`  // index of the message in the request, from 0
	Answer string `json:"answer"` // ack, retry, reject
	Delay  string `json:"delay"`  // of retry: 90s, 1m30s; by default the policy decides
	Reason string `json:"reason"` // of retry and reject
}

// AnswerError reports an invalid answer to a batch.
type AnswerError struct{ Text string }

func (e *AnswerError) Error() string { return "the handler's answer: " + e.Text }

func answerErrorf(format string, args ...any) error {
	return &AnswerError{fmt.Sprintf(format, args...)}
}

// maxAnswer returns the maximum size in bytes of the answer to a batch of n messages.
func maxAnswer(n int) int64 { return 64<<10 + int64(n)*4<<10 }

// HandleBatch implements [Batcher]. If a batch is refused as a whole, it is unknown which message is the cause, so each
// is then posted alone.
func (h *HTTP) HandleBatch(ctx context.Context, all []*Message, answer func(i int, err error)) error {
	begin := time.Now()
	todo := h.parts(all)
	if len(todo) == 1 {
		err := h.postBatch(ctx, all, answer)
		if len(all) == 1 || !errors.Is(err, redeliver.ErrPermanent) {
			return err
		}
		todo = todo[0].split()
	}
	return h.postParts(ctx, begin, all, todo, answer)
}

func (h *HTTP) postBatch(ctx context.Context, all []*Message, answer func(i int, err error)) error {
	body, err := encodeBatch(all)
	if err != nil {
		return err
	}
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}, "User-Agent": userAgent}
	if url := all[0].Extend; url != "" {
		header["Redeliver-Extend"] = []string{url}
	}
	res, err := h.post(ctx, header, body)
	if err != nil {
		return err
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return h.errorOfAnswer(res, firstWords(readAnswer(res, 2*maxText)))
	}
	defer func() { _ = res.Body.Close() }()
	maxBytes := maxAnswer(len(all))
	text, err := io.ReadAll(io.LimitReader(res.Body, maxBytes+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return answerErrorf("it ends too early: %v", err)
	case int64(len(text)) > maxBytes:
		return answerErrorf("it is longer than %d bytes", maxBytes)
	}
	return decodeAnswers(text, len(all), answer)
}

func encodeBatch(all []*Message) ([]byte, error) {
	req := batchRequest{Origin: all[0].State.Origin, Group: all[0].State.Group, Messages: make([]jsonMessage, len(all))}
	for i, m := range all {
		req.Messages[i] = m.json()
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&req); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// decodeAnswers decodes a handler's answers to n messages. Messages without an answer are done. If the whole answer is
// invalid, it returns an error, because it is unknown what was done. If one entry is invalid, that message fails.
func decodeAnswers(text []byte, n int, answer func(i int, err error)) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	var all batchAnswers
	if err := json.Unmarshal(text, &all); err != nil {
		return answerErrorf("it is not the expected JSON: %v", err)
	}
	if all.Answers == nil {
		return answerErrorf(`it has no "answers"`)
	}
	seen := make([]bool, n)
	for _, a := range *all.Answers {
		switch {
		case a.Index == nil:
			return answerErrorf("one of its entries has no index")
		case *a.Index < 0 || *a.Index >= n:
			return answerErrorf("index %d is not between 0 and %d", *a.Index, n-1)
		case seen[*a.Index]:
			return answerErrorf("index %d appears twice", *a.Index)
		}
		seen[*a.Index] = true
	}
	for _, a := range *all.Answers {
		answer(*a.Index, a.err())
	}
	return nil
}

// err returns an answer as the error that a Go handler would return.
func (a *batchAnswer) err() error {
	switch a.Answer {
	case "ack":
		return nil
	case "reject":
		return redeliver.Reject(a.Reason)
	case "retry":
		err := errors.New("the handler asked for a retry")
		if a.Reason != "" {
			err = errors.New(a.Reason)
		}
		if a.Delay == "" {
			return err
		}
		d, bad := time.ParseDuration(a.Delay)
		if bad != nil || d < 0 || d > redeliver.MaxWait {
			return answerErrorf("the delay %q is not between 0s and %s", limits.Cut(a.Delay, 64), redeliver.MaxWait)
		}
		return redeliver.RetryAfter(err, d)
	default:
		return answerErrorf("%q must be ack, retry or reject", limits.Cut(a.Answer, 64))
	}
}
