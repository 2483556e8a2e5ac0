//go:build prove

package rocketmq

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// server is a name server and a broker at one address, with one topic in memory.
type server struct {
	t       *testing.T
	address string

	mu      sync.Mutex
	busy    int        // how many writes are refused before one is taken
	queues  [][][]byte // messages as they are in a store
	created map[string]map[string]string
	unknown int // how often the name server does not know a topic yet
}

func serve(t *testing.T) *server {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	s := &server{t: t, address: l.Addr().String(), queues: make([][][]byte, 2), created: make(map[string]map[string]string)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serveConn(c)
		}
	}()
	return s
}

// serveConn sends a request of its own before each answer, with the same number. The client must not take it for the
// answer.
func (s *server) serveConn(c net.Conn) {
	defer c.Close()
	for {
		request, err := decode(c)
		if err != nil {
			return
		}
		answer := s.answer(request)
		answer.Opaque, answer.Flag, answer.Serialize = request.Opaque, isAnswer, "JSON"
		asked := command{Code: 40, Opaque: request.Opaque}
		for _, each := range []command{asked, answer} {
			frame, err := each.encode()
			if err != nil {
				s.t.Error(err)
				return
			}
			if _, err := c.Write(frame); err != nil {
				return
			}
		}
	}
}

func (s *server) answer(r command) command {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue, _ := strconv.Atoi(r.ExtFields["queueId"])
	switch r.Code {
	case getClusterInfo: // as fastjson writes a number that is a key
		return command{body: []byte(`{"brokerAddrTable":{"one":{"brokerAddrs":{0:"` + s.address + `"},"brokerName":"one"}}}`)}
	case getBrokerRuntime:
		return command{body: []byte(`{"table":{"brokerVersionDesc":"V5_5_0"}}`)}
	case getBrokerConfig:
		return command{body: []byte("messageDelayLevel=1s 5s\nlistenPort=1\n")}
	case updateTopic:
		s.created[r.ExtFields["topic"]] = r.ExtFields
		return command{}
	case updateGroup:
		return command{}
	case getRoute:
		if s.unknown--; s.unknown >= 0 || s.created[r.ExtFields["topic"]] == nil {
			return command{Code: topicNotExist, Remark: "no route info of this topic"}
		}
		return command{}
	case sendMessage:
		if s.busy--; s.busy >= 0 {
			return command{Code: systemBusy, Remark: "[TIMEOUT_CLEAN_QUEUE]"}
		}
		s.queues[queue] = append(s.queues[queue], stored(r.body, r.ExtFields["properties"], len(s.queues[queue])%2 == 1))
		return command{}
	case getMaxOffset:
		return offset(len(s.queues[queue]))
	case queryConsumerOffset:
		if queue == 1 {
			return command{Code: offsetNotFound, Remark: "Not found"}
		}
		return offset(3)
	case pullMessage:
		at, _ := strconv.Atoi(r.ExtFields["queueOffset"])
		if at == 2 { // nothing there, but behind it
			return command{Code: pullNotFound, ExtFields: map[string]string{"nextBeginOffset": "3"}}
		}
		end := min(at+2, len(s.queues[queue]))
		return command{body: slices.Concat(s.queues[queue][at:end]...), ExtFields: map[string]string{"nextBeginOffset": strconv.Itoa(end)}}
	default:
		return command{Code: 3, Remark: "request type " + strconv.Itoa(r.Code) + " not supported"}
	}
}

func offset(n int) command {
	return command{ExtFields: map[string]string{"offset": strconv.Itoa(n)}}
}

var storedAt = time.UnixMilli(1_700_000_000_123)

// stored returns a message in the format of the store, with addresses of four or sixteen bytes.
func stored(body []byte, properties string, v6 bool) []byte {
	host, flags := make([]byte, 8), uint32(0)
	if v6 {
		host, flags = make([]byte, 20), bornV6|storedV6
	}
	b := make([]byte, 4, 256) // the length, at last
	b = append(b, make([]byte, flagsAt-4)...)
	b = binary.BigEndian.AppendUint32(b, flags)
	b = append(b, make([]byte, 8)...)
	b = append(b, host...)
	b = binary.BigEndian.AppendUint64(b, uint64(storedAt.UnixMilli()))
	b = append(b, host...)
	b = append(b, make([]byte, 4+8)...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = append(b, body...)
	b = append(append(b, 1), 't')
	b = binary.BigEndian.AppendUint16(b, uint16(len(properties)))
	b = append(b, properties...)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

func dialServer(t *testing.T, s *server) (*Client, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	c, err := Dial(ctx, s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, ctx
}

// Every written message is read, although the broker is too busy at first, sends requests of its own, and has gaps in a
// queue.
func TestEveryWrittenMessageIsRead(t *testing.T) {
	s := serve(t)
	s.busy = 7
	c, ctx := dialServer(t, s)
	const n = 2000 // more than may be under way
	var all sync.WaitGroup
	for i := range n {
		all.Add(1)
		c.Produce(ctx, "t", 0, "id", []byte(strconv.Itoa(i)), func(err error) {
			if err != nil {
				t.Error(err)
			}
			all.Done()
		})
	}
	all.Wait()
	found := make(map[string]int)
	if err := c.Read(ctx, "t", 2, func(m Message) {
		found[string(m.Body)]++
		if !m.Stored.Equal(storedAt) {
			t.Errorf("stored at %v, want %v", m.Stored, storedAt)
		}
	}); err != nil {
		t.Fatal(err)
	}
	// The server skipped the one at 2.
	if len(found) != n-1 || slices.Max(slices.Collect(maps.Values(found))) != 1 {
		t.Errorf("%d different messages of %d, each at most %d times", len(found), n-1, slices.Max(slices.Collect(maps.Values(found))))
	}
	if !strings.Contains(string(s.queues[0][0]), "UNIQ_KEY\x01id\x02") {
		t.Errorf("the message does not have the id that RocketMQ's producer gives: %q", s.queues[0][0])
	}
}

func TestClientAdministersABroker(t *testing.T) {
	s := serve(t)
	s.unknown = 3
	c, ctx := dialServer(t, s)
	if v, err := c.Version(ctx); err != nil || v != "V5_5_0" {
		t.Errorf("version %q, %v", v, err)
	}
	if all, err := c.Settings(ctx); err != nil || all["messageDelayLevel"] != "1s 5s" || all["listenPort"] != "1" {
		t.Errorf("settings %v, %v", all, err)
	}
	if err := c.CreateGroup(ctx, "g", 4); err != nil || s.created["%RETRY%g"]["readQueueNums"] != "4" {
		t.Errorf("a group: %v, and the topics are %v", err, s.created)
	}
	if at, err := c.Committed(ctx, "g", "t", 2); err != nil || !slices.Equal(at, []int64{3, 0}) {
		t.Errorf("committed %v, %v", at, err)
	}
	if err := c.Drop(ctx, "g"); !is(err, 3) || !strings.Contains(err.Error(), "%DLQ%g") {
		t.Errorf("an unknown name at the server is not an error: %v", err)
	}
}

func TestALostBrokerEndsWaits(t *testing.T) {
	a, b := net.Pipe()
	c := &conn{net: a, waiting: make(map[int32]func(command, error))}
	go c.read()
	go func() {
		_, _ = decode(b)
		_ = b.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // the second finds it gone
		if _, err := c.call(ctx, getMaxOffset, nil, nil); err == nil || errors.Is(err, ctx.Err()) {
			t.Errorf("a request to a broker that went: %v", err)
		}
	}
}

func TestInvalidAnswersAreRefused(t *testing.T) {
	good := stored([]byte("x"), "", false)
	if all, err := parse(good); err != nil || len(all) != 1 {
		t.Fatalf("%d messages, %v", len(all), err)
	}
	for name, b := range map[string][]byte{
		"cut":            good[:len(good)-1],
		"short":          good[:20],
		"without end":    append([]byte{0xff, 0xff, 0xff, 0xff}, good[4:]...),
		"a long body":    slices.Concat(good[:84], []byte{0x7f, 0, 0, 0}, good[88:]),
		"of no length":   append([]byte{0, 0, 0, 0}, good[4:]...),
		"with rubbish":   append(slices.Clone(good), 1),
		"a negative one": slices.Concat(good[:84], []byte{0xff, 0xff, 0xff, 0xf0}, good[88:]),
	} {
		if _, err := parse(b); err == nil {
			t.Errorf("%s: taken for messages", name)
		}
	}
	for name, text := range map[string]string{
		"too long":        "\x7f\xff\xff\xff\x00\x00\x00\x02{}",
		"a long header":   "\x00\x00\x00\x06\x00\x00\x00\x05{}",
		"binary":          "\x00\x00\x00\x06\x01\x00\x00\x02{}",
		"no JSON":         "\x00\x00\x00\x06\x00\x00\x00\x02{x",
		"of no length":    "\x00\x00\x00\x00\x00\x00\x00\x00",
		"cut in the body": "\x00\x00\x00\x09\x00\x00\x00\x02{}a",
	} {
		if _, err := decode(strings.NewReader(text)); err == nil {
			t.Errorf("%s: taken for a frame", name)
		}
	}
	if _, err := Delays("1s 5"); err == nil {
		t.Error("a level without a unit is read as a delay")
	}
}
