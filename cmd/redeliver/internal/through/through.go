// Package through changes messages with a program: it gets one message as a line of JSON on its standard input, and writes one to
// its standard output.
//
// The input has the fields of "dlq show -o jsonl". Of the output only the body, the key and the headers count, and what it leaves
// out does not change. Bytes are in base64 (body, key, value); each of these fields has a twin in text (body_text, key_text, text) if the
// bytes are UTF-8. The one that differs from the input counts. The program runs once for each message.
package through

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// Program is a program that changes messages.
type Program struct {
	// Command is a command of the shell.
	Command string
	// Timeout bounds one run.
	Timeout time.Duration
	// Input returns the JSON of a message.
	Input func(*deadletter.Message) ([]byte, error)
}

const (
	// maxWords bounds what is repeated of the standard error, in bytes.
	maxWords = 300
	// maxWait bounds how long the program's children may keep its output open.
	maxWait = time.Second
)

// Change is a deadletter.Change. An error says why the program does not change the message.
func (p *Program) Change(ctx context.Context, m *deadletter.Message) error {
	input, err := p.Input(m)
	if err != nil {
		return err
	}
	output, err := p.run(ctx, input)
	if err != nil {
		return err
	}
	return readInto(m, input, output)
}

// run runs the program once.
func (p *Program) run(ctx context.Context, input []byte) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, "sh", "-c", p.Command)
	cmd.Env = append(os.Environ(), "REDELIVER_PASSWORD=") // the program needs no right on the broker
	cmd.Stdin = bytes.NewReader(input)
	// In base64 and as text a body of MaxGrowth more bytes takes at most eight times as many.
	out, words := &limitedBuffer{max: 2*len(input) + 8*deadletter.MaxGrowth}, &tail{}
	cmd.Stdout, cmd.Stderr = out, words
	inOwnGroup(cmd)
	cmd.WaitDelay = maxWait
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case limited.Err() != nil:
		return nil, fmt.Errorf("the program did not end within %s%s", p.Timeout, words)
	case out.full: // also if the program ended well
		return nil, fmt.Errorf("the program wrote more than %d bytes", out.max)
	case err != nil:
		return nil, fmt.Errorf("the program ended with %w%s", err, words)
	}
	return out.b.Bytes(), nil
}

// message has the fields of the input and the output that count.
type message struct {
	Key      field    `json:"key"`
	KeyText  *string  `json:"key_text"`
	Headers  []header `json:"headers"`
	Body     field    `json:"body"`
	BodyText *string  `json:"body_text"`
}

type header struct {
	Name  string  `json:"name"`
	Value field   `json:"value"`
	Text  *string `json:"text"`
}

// field is a value in base64, null, or absent.
type field struct {
	set   bool
	bytes []byte
}

// UnmarshalJSON implements [json.Unmarshaler].
func (f *field) UnmarshalJSON(raw []byte) error {
	f.set = true
	return json.Unmarshal(raw, &f.bytes)
}

// readInto sets the key, the body and the headers of m from the output of a program.
func readInto(m *deadletter.Message, input, output []byte) error {
	var was, is message
	if err := json.Unmarshal(input, &was); err != nil {
		return fmt.Errorf("reading the input again: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(output))
	if err := dec.Decode(&is); errors.Is(err, io.EOF) {
		return errors.New("the program wrote nothing: it must write the message, also an unchanged one")
	} else if err != nil {
		return fmt.Errorf("the program did not write a message in JSON: %w", err)
	}
	if err := dec.Decode(new(json.RawMessage)); !errors.Is(err, io.EOF) {
		return errors.New("the program wrote more than one JSON value: it must write one message")
	}
	var err error
	if m.Key, err = merge("key", was.Key, is.Key, was.KeyText, is.KeyText); err != nil {
		return err
	}
	if m.Body, err = merge("body", was.Body, is.Body, was.BodyText, is.BodyText); err != nil || is.Headers == nil {
		return err
	}
	m.Headers = nil
	left := was.Headers
	for _, h := range is.Headers {
		var before header
		for i := range left { // the first one with the name that was not taken yet
			if left[i].Name == h.Name {
				before, left = left[i], append(left[:i:i], left[i+1:]...)
				break
			}
		}
		value, err := merge("value of the header "+h.Name, before.Value, h.Value, before.Text, h.Text)
		if err != nil {
			return err
		}
		m.Headers = append(m.Headers, deadletter.Header{Name: h.Name, Value: value})
	}
	return nil
}

// merge returns the bytes that the program wants: those of the twin that it has changed.
func merge(what string, was, is field, wasText, isText *string) ([]byte, error) {
	textChanged := isText != nil && (wasText == nil || *isText != *wasText)
	bytesChanged := is.set && ((is.bytes == nil) != (was.bytes == nil) || !bytes.Equal(is.bytes, was.bytes))
	switch {
	case textChanged && bytesChanged && string(is.bytes) != *isText:
		return nil, fmt.Errorf("the program changed the %s twice, in base64 (%s) and as text (%s), and they differ: change one", what,
			cut(base64.StdEncoding.EncodeToString(is.bytes)), cut(*isText))
	case textChanged:
		return []byte(*isText), nil
	case bytesChanged:
		return is.bytes, nil
	default:
		return was.bytes, nil
	}
}

func cut(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// limitedBuffer keeps at most max bytes.
type limitedBuffer struct {
	b    bytes.Buffer // not embedded: io.Copy would call its ReadFrom, which has no limit
	max  int
	full bool
}

// Write implements [io.Writer].
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.b.Len()+len(p) > b.max {
		b.full = true
		return 0, errors.New("too much output")
	}
	return b.b.Write(p)
}

// tail keeps the end of what is written.
type tail struct{ text []byte }

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - maxWords; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

// String returns the text for the end of an error.
func (t *tail) String() string {
	words := strings.Join(strings.Fields(strings.ToValidUTF8(string(t.text), "?")), " ")
	if words == "" {
		return ""
	}
	return ": " + words
}
