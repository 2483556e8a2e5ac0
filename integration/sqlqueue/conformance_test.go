package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/adapters"
	"github.com/redeliver/redeliver/examples/adapter"
	"github.com/redeliver/redeliver/internal/adaptertest"
)

// The example adapter keeps the promises of redeliver's own ones, as far as a table can.
func TestConformance(t *testing.T) {
	t.Parallel()
	h := &harness{files: make(map[string]string)}
	adaptertest.Run(t, h.kit())
}

func (h *harness) kit() adaptertest.Harness {
	return adaptertest.Harness{
		Name: "a table of SQLite",
		Features: adaptertest.Features{
			ForeignHeaders: true, Refuse: true, KeepsAttempts: true, MessageTimes: true, NoHeadOfLineBlocking: true,
		},
		Origin: h.newOrigin, Open: h.open, Put: h.put, PutRetries: h.putRetries, DeadLetters: h.deadLetters, Received: received, Refuse: h.refuse,
	}
}

// harness has a file for each origin.
type harness struct {
	mu    sync.Mutex
	files map[string]string
}

func (h *harness) newOrigin(t testing.TB, _ int) (origin string, groups []string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	origin = fmt.Sprintf("orders-%d", len(h.files))
	h.files[origin] = filepath.Join(t.TempDir(), "queue.db")
	return origin, []string{origin}
}

func (h *harness) connect(t testing.TB, origin string) *sql.DB {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	db, err := openFile(h.files[origin], "OFF")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (h *harness) exec(t testing.TB, origin, query string, args ...any) {
	t.Helper()
	if _, err := h.connect(t, origin).ExecContext(context.Background(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// service is a process with its own connection. It implements adaptertest.Service.
type service struct {
	db  *sql.DB
	cfg adapters.Config[*adapter.Row]

	mu     sync.Mutex
	subs   []*subscriber
	closed bool
}

var errClosed = errors.New("the service is closed")

func (h *harness) open(t testing.TB, cfg adaptertest.Config) (adaptertest.Service, error) {
	t.Helper()
	s := &service{db: h.connect(t, cfg.Origin), cfg: adapters.Config[*adapter.Row]{
		Origin: cfg.Origin, Group: cfg.Group, Policy: cfg.Policy, Sink: cfg.Sink, MaxInFlight: cfg.MaxInFlight, MinInFlight: cfg.MinInFlight,
		NackDelay: cfg.NackDelay, DrainTimeout: cfg.DrainTimeout, SendTimeout: cfg.SendTimeout,
	}}
	if _, err := adapter.Open(s.db, s.cfg); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *service) Publisher() message.Publisher { return publisher{s} }

func (s *service) Subscriber() message.Subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := &subscriber{service: s}
	s.subs = append(s.subs, sub)
	return sub
}

func (s *service) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *service) Close(ctx context.Context) (err error) {
	s.mu.Lock()
	s.closed = true
	subs := s.subs
	s.mu.Unlock()
	for _, sub := range subs {
		err = errors.Join(err, sub.end(ctx))
	}
	return err
}

// Kill takes the database from the service.
func (s *service) Kill() { _ = s.db.Close() }

type publisher struct{ *service }

func (p publisher) Publish(_ string, msgs ...*message.Message) (err error) {
	if p.isClosed() {
		return errClosed
	}
	for _, msg := range msgs {
		_, _, refused := adapters.PublishDue(msg, time.Now())
		if refused == nil {
			refused = adapter.Add(context.Background(), p.db, msg.UUID, msg.Payload, msg.Metadata)
		}
		if refused != nil {
			err = errors.Join(err, fmt.Errorf("publishing %s: %w", msg.UUID, refused))
		}
	}
	return err
}

func (publisher) Close() error { return nil }

// subscriber has a queue for each Subscribe.
type subscriber struct {
	*service

	mu     sync.Mutex
	queues []*adapter.Queue
}

func (s *subscriber) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	if s.isClosed() {
		return nil, errClosed
	}
	q, err := adapter.Open(s.db, s.cfg)
	if err != nil {
		return nil, err
	}
	q.Lease, q.Poll = 20*time.Second, 20*time.Millisecond
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = append(s.queues, q)
	go func() {
		_ = q.Run(ctx)                          // an error means that it is closed
		_ = q.Close(context.WithoutCancel(ctx)) // which closes the channel
	}()
	return q.Messages(), nil
}

func (s *subscriber) Close() error { return s.end(context.Background()) }

func (s *subscriber) end(ctx context.Context) (err error) {
	s.mu.Lock()
	queues := s.queues
	s.mu.Unlock()
	for _, q := range queues {
		err = errors.Join(err, q.Close(ctx))
	}
	return err
}

func (h *harness) put(t testing.TB, origin string, msgs ...adaptertest.Message) {
	t.Helper()
	h.insert(t, origin, msgs)
}

func (h *harness) putRetries(t testing.TB, origin, _ string, msgs ...adaptertest.Message) {
	t.Helper()
	h.insert(t, origin, msgs)
}

func (h *harness) insert(t testing.TB, origin string, msgs []adaptertest.Message) {
	t.Helper()
	db := h.connect(t, origin)
	for i, m := range msgs {
		headers := make(map[string]string)
		for _, x := range m.Headers {
			headers[x.Name] = string(x.Value)
		}
		user, err := json.Marshal(headers)
		var state []byte
		if len(m.OwnHeaders) > 0 {
			own := make(map[string]string)
			for _, x := range m.OwnHeaders {
				own[x.Name] = x.Value
			}
			var err2 error
			state, err2 = json.Marshal(own)
			err = errors.Join(err, err2)
		}
		if string(m.Body) == adaptertest.Undecodable {
			user = append(user, ", and more"...) // no JSON
		}
		if m.ID == "" {
			m.ID = fmt.Sprintf("unnamed-%d", i)
		}
		_, err2 := db.ExecContext(context.Background(), `INSERT INTO messages (id, body, headers, state, due, written) VALUES ($1, $2, $3, $4, 0, $5)`,
			m.ID, m.Body, string(user), string(state), time.Now().UnixMilli())
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
	}
}

func (h *harness) deadLetters(t testing.TB, origin, _ string, n int) (all []adaptertest.Message) {
	t.Helper()
	db, deadline := h.connect(t, origin), time.Now().Add(adaptertest.Timeout)
	look := time.NewTicker(20 * time.Millisecond) // a database reports no changes
	defer look.Stop()
	for ; ; <-look.C {
		if all = readDead(t, db); len(all) >= n || time.Now().After(deadline) {
			return all
		}
	}
}

func readDead(t testing.TB, db *sql.DB) (all []adaptertest.Message) {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), `SELECT id, body, headers, state FROM dead_letters ORDER BY seq`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var m adaptertest.Message
		var user, state string
		if err := rows.Scan(&m.ID, &m.Body, &user, &state); err != nil {
			t.Fatal(err)
		}
		var headers map[string]string
		if err := json.NewDecoder(strings.NewReader(user)).Decode(&headers); err != nil { // it accepts an undecodable row
			t.Fatal(err)
		}
		m.Headers = headersOf(headers)
		m.OwnHeaders = readHeaders(t, state)
		all = append(all, m)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func headersOf(m map[string]string) (all []adaptertest.Header) {
	for name, value := range m {
		all = append(all, adaptertest.Header{Name: name, Value: []byte(value)})
	}
	return all
}

func received(msg *message.Message) adaptertest.Message {
	return adaptertest.Message{ID: msg.UUID, Body: append([]byte(nil), msg.Payload...), Headers: headersOf(msg.Metadata)}
}

// refuse makes the database refuse rows.
func (h *harness) refuse(t testing.TB, origin, _ string, what adaptertest.Place) (restore func()) {
	t.Helper()
	table, when := "dead_letters", "1"
	if what == adaptertest.Levels {
		table, when = "messages", "NEW.state <> ''"
	}
	h.exec(t, origin, fmt.Sprintf(`CREATE TRIGGER refuse_%s BEFORE INSERT ON %s WHEN %s BEGIN SELECT RAISE(ABORT, 'refused'); END`, table, table, when))
	return func() { h.exec(t, origin, `DROP TRIGGER refuse_`+table) }
}
