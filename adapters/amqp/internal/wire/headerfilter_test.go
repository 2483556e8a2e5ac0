package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"testing"
	"testing/iotest"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
	"github.com/redeliver/redeliver/internal/wirename"
)

// framed returns a content header on a channel that is not open, so that the client reads and drops it.
func framed(payload []byte) []byte {
	frame := append([]byte{frameContent}, 0x7f, 0xff)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(payload)))
	return append(append(frame, payload...), 0xCE)
}

// filteredBytes returns the output of a header filter.
func filteredBytes(t testing.TB, in io.Reader, frame int) []byte {
	t.Helper()
	s := NewHeaderFilter(reads{Reader: in})
	s.frame.Store(int64(frame))
	out, err := io.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

type reads struct {
	net.Conn
	io.Reader
}

func (r reads) Read(p []byte) (int, error) { return r.Reader.Read(p) }

// clientReads reports whether the client survives a frame.
func clientReads(t testing.TB, frame []byte) bool {
	t.Helper()
	w := amqptest.NewServer(t)
	defer func() { _ = w.Remote.Close() }()
	if _, err := w.Remote.Write(frame); err != nil {
		return false // it closed the connection before everything was written
	}
	_, err := w.Conn.Channel()
	return err == nil
}

// Readable frames pass unchanged, in pieces of any size.
func TestHeaderFilterPassesReadableFrames(t *testing.T) {
	w := amqptest.NewServer(t)
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		for range rapid.IntRange(1, 4).Draw(t, "messages") {
			d := anyDelivery(t)
			header, err := w.Header(PlainCopy(&d))
			if err != nil {
				t.Fatal(err)
			}
			stream = append(stream, framed(header)...)
			stream = append(stream, 3, 0, 1, 0, 0, 0, 5, 'b', 'o', 'd', 'y', '!', 0xCE)
			stream = append(stream, 8, 0, 0, 0, 0, 0, 0, 0xCE) // a heartbeat
		}
		var in io.Reader = bytes.NewReader(stream)
		switch rapid.IntRange(0, 2).Draw(t, "pieces") {
		case 0:
			in = iotest.OneByteReader(in)
		case 1:
			in = iotest.HalfReader(in)
		}
		s := NewHeaderFilter(reads{Reader: in})
		if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, stream) {
			t.Fatalf("got %q (%v), want %q", got, err, stream)
		}
	})
}

// A frame that is larger than any buffer passes too.
func TestHeaderFilterPassesLargeHeaders(t *testing.T) {
	for _, n := range []int{filterBuffer - 100, filterBuffer, filterBuffer + 1, 200_000} {
		table := field("a", 'x', make([]byte, n))
		payload := append(append(make([]byte, 12), flagHeaders>>8, 0), binary.BigEndian.AppendUint32(nil, uint32(len(table)))...)
		frame := framed(append(payload, table...))
		if got := filteredBytes(t, bytes.NewReader(frame), 0); !bytes.Equal(got, frame) {
			t.Errorf("%d bytes were changed", n)
		}
	}
}

// For any headers from a broker, the client can read the output of the filter, and gets readable frames unchanged.
func FuzzHeaderFilter(f *testing.F) {
	f.Add([]byte("\x01aS\x00\x00\x00\x01x"), uint16(flagHeaders), []byte{})
	f.Add([]byte("\x01aS\xff\x00\x00\x01x"), uint16(flagHeaders), []byte{})
	f.Add([]byte("\x01aF\x00\x00\x00\x03\x01bV"), uint16(flagHeaders|0x1000), []byte{2})
	f.Add([]byte("\x01aA\x00\x00\x00\x02VV\x01bq"), uint16(flagHeaders|0x80), []byte("\x03abc"))
	f.Add([]byte("\x17"+wirename.WatermillUUID+"S\x00\x00\x00\x02id\x01b?"), uint16(flagHeaders|0x80), []byte("\x03abc"))
	f.Fuzz(func(t *testing.T, table []byte, flags uint16, after []byte) {
		// A broker never sends malformed properties.
		flags &= flagHeaders | 0x1080
		want := 0
		if flags&0x1000 != 0 {
			want++
		}
		if flags&0x80 != 0 {
			want += 4
		}
		after = append(after, make([]byte, want)...)[:want]
		if flags&0x80 != 0 {
			after[want-4] = 3
		}
		payload := binary.BigEndian.AppendUint16(make([]byte, 12), flags)
		if flags&flagHeaders != 0 {
			payload = append(binary.BigEndian.AppendUint32(payload, uint32(len(table))), table...)
		}
		frame := framed(append(payload, after...))
		got := filteredBytes(t, bytes.NewReader(frame), 0)
		if !clientReads(t, got) {
			t.Errorf("the client cannot read %q, which replaces %q", got, frame)
		}
		if bytes.Equal(got, frame) {
			return
		}
		if !bytes.HasSuffix(got[:len(got)-1], after) {
			t.Errorf("%q has other properties than %q", got, frame)
		}
	})
}

// The filter has the same limits as the client.
func TestHeaderFilterKnowsTheClientsLimits(t *testing.T) {
	nulls := func(n int, named bool) (b []byte) {
		for i := range n {
			if named {
				b = append(b, 2, byte(i>>8), byte(i))
			}
			b = append(b, 'V')
		}
		return b
	}
	deep := func(n int, kind byte) (b []byte) {
		b = []byte("\x01xV")
		if kind == 'A' {
			b = []byte("V")
		}
		for i := range n {
			if kind == 'F' || i == n-1 {
				b = field("d", kind, b)
			} else {
				b = field("", kind, b)[1:]
			}
		}
		return b
	}
	for name, row := range map[string]struct {
		table []byte
		reads bool
	}{
		"nothing":           {nil, true},
		"fields":            {nulls(maxFields, true), true},
		"one field more":    {nulls(maxFields+1, true), false},
		"an array":          {field("a", 'A', nulls(maxFields, false)), true},
		"one item more":     {field("a", 'A', nulls(maxFields+1, false)), false},
		"fields inside":     {field("a", 'F', nulls(maxFields+1, true)), false},
		"deep":              {deep(maxDepth, 'F'), true},
		"deeper":            {deep(maxDepth+1, 'F'), false},
		"deep arrays":       {deep(maxDepth, 'A'), true},
		"deeper arrays":     {deep(maxDepth+1, 'A'), false},
		"an unknown type":   {[]byte("\x01aZ\x00"), false},
		"no type":           {[]byte("\x01a"), false},
		"no value":          {[]byte("\x01al\x00"), false},
		"a negative length": {[]byte("\x01ax\xff\xff\xff\xff"), false},
		"no name":           {[]byte("\x05a"), false},
	} {
		t.Run(name, func(t *testing.T) {
			payload := binary.BigEndian.AppendUint16(make([]byte, 12), flagHeaders|0x80)
			payload = append(binary.BigEndian.AppendUint32(payload, uint32(len(row.table))), row.table...)
			frame := framed(append(payload, "\x02id"...))
			if got := clientReads(t, frame); got != row.reads {
				t.Fatalf("the client reads it: %v; the limits differ", got)
			}
			got := filteredBytes(t, bytes.NewReader(frame), 0)
			if bytes.Equal(got, frame) != row.reads {
				t.Errorf("it passed: %v, want %v", !row.reads, row.reads)
			}
			if !clientReads(t, got) {
				t.Errorf("the client cannot read its input: %q", got)
			}
		})
	}
}

// Headers longer than the negotiated frame are replaced by some that fit, however small it is.
func TestHeaderFilterReplacesTooLongHeaders(t *testing.T) {
	const most = 4096
	ours := field(redeliver.HeaderID, 'S', []byte("its id"))
	for name, table := range map[string][]byte{
		"ours": append(bytes.Clone(ours), field("large", 'x', make([]byte, most))...),
		"only ours, far too many": bytes.Repeat(append(bytes.Clone(ours),
			field("redeliver-more", 'S', bytes.Repeat([]byte("x"), 500))...), 10),
	} {
		payload := binary.BigEndian.AppendUint16(make([]byte, 12), flagHeaders|0x80)
		payload = append(binary.BigEndian.AppendUint32(payload, uint32(len(table))), table...)
		got := filteredBytes(t, bytes.NewReader(framed(append(payload, "\x02id"...))), most)
		if len(got) > most || !bytes.Contains(got, []byte(UnreadableReason)) || bytes.Contains(got, []byte("large")) {
			t.Errorf("%s: got %d bytes: %.200q", name, len(got), got)
		}
		if name == "ours" && !bytes.Contains(got, ours) {
			t.Errorf("the id is missing: %q", got)
		}
	}
}

// Other programs cannot mark a message as unreadable.
func TestOnlyTheHeaderFilterMarksUnreadable(t *testing.T) {
	d := amqp091.Delivery{Headers: amqp091.Table{"unreadable-": "x", unreadableRaw: []byte("x")}}
	if _, why := RemoveUnreadable(&d); why != nil {
		t.Errorf("it is trusted: %v", why)
	}
	if UnreadableReason == "unreadable-" || len(UnreadableReason) > math.MaxUint8 {
		t.Errorf("the name is %q", UnreadableReason)
	}
}
