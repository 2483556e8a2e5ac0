package wire

import (
	"errors"
	"maps"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wirename"
)

// names of headers with a meaning
var specialNames = []string{
	"CC", "BCC", "cc", "x-death", "x-first-death-queue", "x-last-death-reason", "x-delivery-count", "x-acquired-count", "x-mine", wirename.WatermillUUID, "",
	redeliver.HeaderAttempt, redeliver.HeaderDue, redeliver.HeaderGroup, HeaderExchange, HeaderRoutingKey, HeaderCC, HeaderBCC, HeaderForeign,
	HeaderReplyTo, HeaderUserID, HeaderExpiration, HeaderPriority, HeaderDeliveryMode, "redeliver-", "redeliver-amqp-else", "Redeliver-x",
}

// anyValue returns a header value of any type that the client reads, with at most depth nested tables.
func anyValue(t *rapid.T, depth int) any {
	kinds := 15
	if depth > 0 {
		kinds += 2
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Byte().Draw(t, "byte")
	case 3:
		return rapid.Int8().Draw(t, "int8")
	case 4:
		return rapid.Int16().Draw(t, "int16")
	case 5:
		return rapid.Uint16().Draw(t, "uint16")
	case 6:
		return rapid.Int32().Draw(t, "int32")
	case 7:
		return rapid.Uint32().Draw(t, "uint32")
	case 8:
		return rapid.Int64().Draw(t, "int64")
	case 9:
		return rapid.Float32().Draw(t, "float32")
	case 10:
		return rapid.Float64().Draw(t, "float64")
	case 11:
		return amqp091.Decimal{Scale: rapid.Byte().Draw(t, "scale"), Value: rapid.Int32().Draw(t, "value")}
	case 12:
		return rapid.String().Draw(t, "string")
	case 13:
		return rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
	case 14:
		return time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "time"), 0)
	case 15:
		return anyTable(t, depth-1, 4)
	default:
		items := make([]any, rapid.IntRange(0, 4).Draw(t, "items"))
		for i := range items {
			items[i] = anyValue(t, depth-1)
		}
		return items
	}
}

func anyTable(t *rapid.T, depth, most int) amqp091.Table {
	table := amqp091.Table{}
	name := rapid.OneOf(rapid.SampledFrom(specialNames), rapid.StringN(0, 60, 255))
	for range rapid.IntRange(0, most).Draw(t, "entries") {
		table[name.Draw(t, "name")] = anyValue(t, depth)
	}
	return table
}

func anyDelivery(t *rapid.T) amqp091.Delivery {
	short := func(name string) string {
		return rapid.OneOf(rapid.Just(""), rapid.StringN(1, 60, 255)).Draw(t, name)
	}
	d := amqp091.Delivery{
		Headers: anyTable(t, 3, 12), ContentType: short("content type"), ContentEncoding: short("encoding"), CorrelationId: short("correlation id"),
		ReplyTo:    rapid.OneOf(rapid.Just(directReplyTo), rapid.StringN(0, 60, 255)).Draw(t, "reply-to"),
		Expiration: rapid.SampledFrom([]string{"", "0", "60000"}).Draw(t, "expiration"), MessageId: short("message id"), Type: short("type"),
		UserId: short("user"), AppId: short("app"), Exchange: short("exchange"), RoutingKey: short("key"), Priority: rapid.Byte().Draw(t, "priority"),
		DeliveryMode: rapid.SampledFrom([]uint8{0, amqp091.Transient, amqp091.Persistent}).Draw(t, "mode"), Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
	}
	if rapid.Bool().Draw(t, "timed") {
		d.Timestamp = time.Unix(rapid.Int64Range(0, 1<<41).Draw(t, "timestamp"), 0)
	}
	if len(d.Headers) == 0 {
		d.Headers = nil
	}
	return d
}

// A message that waited on a redeliver queue comes back unchanged, without the broker's headers. So it does after the
// next wait.
func TestWaitingMessageComesBackUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := anyDelivery(t)
		want := first
		want.Headers = maps.Clone(first.Headers)
		maps.DeleteFunc(want.Headers, func(name string, _ any) bool { return IsBrokerHeader(name) })
		if len(want.Headers) == 0 {
			want.Headers = nil
		}
		now := time.Now().UTC().Truncate(time.Millisecond)
		st := redeliver.State{
			ID: "id", Group: "orders", Origin: "orders", Attempts: rapid.IntRange(0, 9).Draw(t, "attempts"), Due: now, FirstFailed: now, LastFailed: now,
			Error: rapid.String().Draw(t, "error"), FirstError: "first", Policy: "p",
		}
		st.Error = limits.Cut(st.Error, limits.MaxErrorText)
		on := Record{Delivery: first}
		for range 2 {
			p := on.Publishing(&st)
			if p.Priority != 0 || p.Expiration != "" || p.UserId != "" || p.ReplyTo == directReplyTo || p.DeliveryMode != amqp091.Persistent {
				t.Fatalf("it waits with %+v", p)
			}
			for name := range p.Headers {
				if IsBrokerHeader(name) || name == "CC" || name == "BCC" {
					t.Fatalf("it waits with the header %s", name)
				}
			}
			back := DeliveryOf(p, "", "orders.retry")
			back.Headers = maps.Clone(p.Headers)
			back.Headers["x-death"] = []any{amqp091.Table{"queue": "orders.retry.10s"}}
			back.Headers["x-delivery-count"] = int64(1)
			ours, findings := RestoreOriginal(&back)
			got, more := driver.ParseHeaders("orders", ours)
			if findings = append(findings, more...); len(findings) > 0 || !reflect.DeepEqual(got, st) {
				t.Fatalf("the state is %+v, want %+v; %v", got, st, findings)
			}
			if !reflect.DeepEqual(back, want) {
				t.Fatalf("it came back as\n%#v\nwant\n%#v", back, want)
			}
			on = Record{Delivery: back}
		}
	})
}

// A message that another program put on a redeliver queue is its own original.
func TestForeignDeliveryIsItsOwnOriginal(t *testing.T) {
	d := amqp091.Delivery{Exchange: "e", RoutingKey: "k", Expiration: "5", UserId: "u", DeliveryMode: 1, Headers: amqp091.Table{"mine": "x", redeliver.HeaderError: amqp091.Table{}}}
	want := d
	want.Headers = amqp091.Table{"mine": "x"}
	ours, findings := RestoreOriginal(&d)
	if !reflect.DeepEqual(d, want) || len(ours) > 0 || len(findings) != 1 || findings[0].Header != redeliver.HeaderError {
		t.Errorf("%+v, %v, %v", d, ours, findings)
	}
}

func TestForeignHeadersAreReported(t *testing.T) {
	found := ForeignHeaders(amqp091.Table{"mine": "x", "redeliver-id": strings.Repeat("x", 100), "redeliver-amqp-cc": int32(1)}, "not believed")
	if len(found) != 2 || len(found[0].Value) > 64 || found[0].Problem != "not believed" {
		t.Errorf("%v", found)
	}
}

// A table has room for thousands of headers, on an origin and on a queue that redeliver writes.
func TestManyForeignHeadersAreCountedNotListed(t *testing.T) {
	const n = 5000
	table := make(amqp091.Table, n)
	for i := range n {
		table["redeliver-"+strconv.Itoa(i)] = []any{strings.Repeat("x", 1000)}
	}
	_, garbage := RestoreOriginal(&amqp091.Delivery{Headers: table})
	for what, found := range map[string][]redeliver.Finding{"on an origin": ForeignHeaders(table, ""), "on a queue of ours": garbage} {
		size := 0
		for _, f := range found {
			size += len(f.Header) + len(f.Value) + len(f.Problem)
		}
		if len(found) != 21 || size > 10_000 || !strings.Contains(found[len(found)-1].Problem, strconv.Itoa(n-20)) {
			t.Errorf("%s: %d findings of %d bytes, the last %q; want 20, and a count of the other %d", what, len(found), size, found[len(found)-1], n-20)
		}
	}
}

// headerSize returns the number of bytes that the client writes.
func TestHeaderSizeMatchesTheClient(t *testing.T) {
	wire := amqptest.NewServer(t)
	rapid.Check(t, func(t *rapid.T) {
		d := anyDelivery(t)
		p := PlainCopy(&d)
		if rapid.Bool().Draw(t, "int") {
			p.Headers["int"] = 5
		}
		got, err := wire.Write(p)
		if err != nil {
			t.Fatal(err)
		}
		if size := headerSize(&p); size != got {
			t.Errorf("%d bytes, the client wrote %d for %#v", size, got, p)
		}
	})
}

const frame = 128 << 10

// large returns a delivery whose headers fit into a frame.
func large(t *rapid.T) amqp091.Delivery {
	d := anyDelivery(t)
	delete(d.Headers, "fill")
	if d.Headers == nil {
		d.Headers = amqp091.Table{}
	}
	p := PlainCopy(&d)
	p.Headers = maps.Clone(d.Headers)
	p.Headers["fill"] = ""
	room := frame - frameOverhead - headerSize(&p)
	d.Headers["fill"] = strings.Repeat("f", room-rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 8<<10), rapid.IntRange(WaitingRoom+100, WaitingRoom+1000)).Draw(t, "less"))
	return d
}

// A waiting copy fits into a frame with room for the broker, and has everything that the user set and that it needs
// to come back. Otherwise it is refused.
func TestWaitingCopyFitsOrIsRefused(t *testing.T) {
	st := redeliver.State{ID: "id", Group: "orders", Attempts: 1, Due: time.Now(), Error: strings.Repeat("e", 2000), FirstError: strings.Repeat("f", 2000), ErrorType: "*errors.errorString", Policy: "p"}
	rapid.Check(t, func(t *rapid.T) {
		rec := Record{Delivery: large(t)}
		full := rec.Publishing(&st)
		p, err := rec.WaitingCopy(&st, time.Time{}, frame, WaitingRoom)
		least := maps.Clone(full.Headers)
		for _, name := range dispensable {
			delete(least, name)
		}
		full.Headers = least
		fits := headerSize(&full) <= frame-8-WaitingRoom
		switch {
		case err != nil && !errors.Is(err, driver.ErrRefused) || (err == nil) != fits:
			t.Fatalf("%v, but without its optional parts it has %d bytes", err, headerSize(&full))
		case err != nil:
			return
		case headerSize(&p) > frame-8-WaitingRoom:
			t.Fatalf("it has %d bytes", headerSize(&p))
		}
		if _, hasError := p.Headers[redeliver.HeaderError]; !hasError {
			short := full
			short.Headers = maps.Clone(least)
			short.Headers[redeliver.HeaderError], short.Headers[redeliver.HeaderPolicy] = strings.Repeat("e", 128), "p"
			if headerSize(&short) <= frame-8-WaitingRoom {
				t.Fatal("the error is missing, although its beginning would fit")
			}
		}
		if first, hasFirst := p.Headers[redeliver.HeaderFirstError]; hasFirst && len(p.Headers[redeliver.HeaderError].(string)) < len(first.(string)) {
			t.Fatal("the first error takes the room of the latest one")
		}
		for _, name := range dispensable {
			delete(p.Headers, name)
		}
		if !reflect.DeepEqual(p.Headers, least) {
			t.Fatal("other headers changed")
		}
	})
}

// The DLQ accepts every message that came in a frame, with the user's headers and, if there is room, the reason. Such
// a copy goes nowhere else, does not expire, and is not refused.
func TestDLQAcceptsEveryFrame(t *testing.T) {
	st := redeliver.State{
		ID: "id", Group: "orders", Origin: "orders", Attempts: 1, Due: time.Now(), Error: strings.Repeat("e", 2000), FirstError: strings.Repeat("f", 2000), ErrorType: "x", Policy: "p",
		Reason: redeliver.ReasonUnschedulable, FirstFailed: time.Now(), LastFailed: time.Now(),
	}
	bare := 0
	rapid.Check(t, func(t *rapid.T) {
		d := large(t)
		maps.DeleteFunc(d.Headers, func(name string, _ any) bool { return name == "cc" || strings.HasPrefix(name, "Redeliver-") })
		rec := Record{Delivery: d}
		p := rec.DeadCopy(&st, frame)
		size := headerSize(&p)
		if size > frame-frameOverhead {
			t.Fatalf("it has %d bytes", size)
		}
		if p.Expiration != "" || p.UserId != "" || p.ReplyTo == directReplyTo || p.Headers["CC"] != nil || p.Headers["BCC"] != nil {
			t.Fatalf("it has %+v", p)
		}
		if p.Headers[redeliver.HeaderReason] != nil && size > frame-frameOverhead-CountRoom {
			t.Fatalf("there is no room for a count: %d bytes", size)
		}
		got := maps.Clone(p.Headers)
		if _, ok := p.Headers[HeaderRoutingKey]; ok {
			back := DeliveryOf(p, "", "orders.dlq")
			RestoreOriginal(&back)
			got = back.Headers
		} else {
			bare++
			for name, v := range p.Headers {
				switch {
				case name == "cc" || name == "bcc":
					delete(got, name)
					got[strings.ToUpper(name)] = v
				case strings.HasPrefix(name, "Redeliver-"):
					delete(got, name)
					got["r"+name[1:]] = v
				}
			}
		}
		maps.DeleteFunc(d.Headers, func(name string, _ any) bool { return IsBrokerHeader(name) })
		if !reflect.DeepEqual(got, d.Headers) {
			t.Fatalf("it has other headers than the original")
		}
	})
	if bare == 0 {
		t.Error("no message was so large that redeliver's headers had no room")
	}
}

// A copy must not exceed the client's limits for tables that it could read.
func TestClientCanReadWaitingCopies(t *testing.T) {
	nested := func(n int) amqp091.Table {
		table := amqp091.Table{}
		for range n - 1 {
			table = amqp091.Table{"t": table}
		}
		return table
	}
	many := func(n int) amqp091.Table {
		table := make(amqp091.Table, n)
		for i := range n {
			table[strconv.Itoa(i)] = nil
		}
		return table
	}
	st := redeliver.State{ID: "id", Attempts: 1}
	for name, row := range map[string]struct {
		headers amqp091.Table
		waits   bool
	}{
		"32 deep":                      {amqp091.Table{"t": nested(32)}, true},
		"31 deep, with a name of ours": {amqp091.Table{"redeliver-t": nested(31)}, true},
		"32 deep, with a name of ours": {amqp091.Table{"redeliver-t": nested(32)}, false},
		"array in it":                  {amqp091.Table{"redeliver-t": []any{nested(31)}}, false},
		"8100 headers":                 {many(8100), true},
		"8175 headers":                 {many(8175), false},
		"8192 headers":                 {many(8192), false},
	} {
		t.Run(name, func(t *testing.T) {
			rec := Record{Delivery: amqp091.Delivery{Headers: row.headers}}
			if _, err := rec.WaitingCopy(&st, time.Time{}, frame, WaitingRoom); (err == nil) != row.waits {
				t.Errorf("%v, want that it waits: %v", err, row.waits)
			}
			p := rec.DeadCopy(&st, frame)
			if depth(p.Headers) > maxDepth+1 || len(p.Headers) > maxFields {
				t.Errorf("in the DLQ it has %d headers, %d deep", len(p.Headers), depth(p.Headers))
			}
		})
	}
}

func TestUnwritableMessagesAreRefused(t *testing.T) {
	long := strings.Repeat("x", 256)
	ok := strings.Repeat("x", 255)
	for want, p := range map[string]amqp091.Publishing{
		"":                                  {ContentType: ok, MessageId: ok, Headers: amqp091.Table{ok: long, "t": amqp091.Table{ok: 1}, "CC": []any{"x"}}},
		"its message id of 256 bytes":       {MessageId: long},
		"its correlation id of 256 bytes":   {CorrelationId: long},
		"has a name of 256 bytes":           {Headers: amqp091.Table{long: "x"}},
		"x\"... has a name of 256 bytes":    {Headers: amqp091.Table{"t": []any{amqp091.Table{long: "x"}}}},
		"its header CC is not a list":       {Headers: amqp091.Table{"CC": "x"}},
		"its header BCC is not a list":      {Headers: amqp091.Table{"BCC": nil}},
		"do not fit into a frame of 131072": {Headers: amqp091.Table{"x": strings.Repeat("x", frame)}},
	} {
		err := CheckWritable(&p, ok, ok, frame)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := CheckWritable(&amqp091.Publishing{}, long, "", 0); err == nil || !strings.Contains(err.Error(), "its exchange of 256") {
		t.Error(err)
	}
	if err := CheckWritable(&amqp091.Publishing{}, "", long, 0); err == nil || !strings.Contains(err.Error(), "its routing key of 256") {
		t.Error(err)
	}
	if err := CheckWritable(&amqp091.Publishing{Headers: amqp091.Table{"x": strings.Repeat("x", frame)}}, "", "", 0); err != nil {
		t.Errorf("frames have no limit: %v", err)
	}
}

func TestExpirationCountsFromTheTimestamp(t *testing.T) {
	at, seen := time.Unix(1_700_000_000, 0), time.Unix(1_800_000_000, 5)
	for name, row := range map[string]struct {
		expiration  string
		stamp, seen time.Time
		want        time.Time
	}{
		"none":               {"", at, seen, time.Time{}},
		"of a message":       {"1500", at, seen, at.Add(2500 * time.Millisecond)}, // the timestamp has whole seconds
		"0":                  {"0", at, seen, at.Add(time.Second)},
		"first seen":         {"1500", time.Time{}, seen, seen.Add(1500 * time.Millisecond)},
		"never seen":         {"1500", time.Time{}, time.Time{}, time.Time{}},
		"milliseconds":       {"1500", time.Unix(1_700_000_000_123, 0), seen, seen.Add(1500 * time.Millisecond)},
		"microseconds":       {"1500", time.Unix(1_700_000_000_123_456, 0), seen, seen.Add(1500 * time.Millisecond)},
		"64 bits":            {"1500", time.Unix(math.MaxInt64, 0), seen, seen.Add(1500 * time.Millisecond)},
		"no clock":           {"1500", time.Unix(5, 0), seen, seen.Add(1500 * time.Millisecond)},
		"a clock ahead":      {"1500", seen.Add(time.Hour), seen, seen.Add(1500 * time.Millisecond)},
		"no number":          {"soon", at, seen, time.Time{}},
		"negative":           {"-1", at, seen, time.Time{}},
		"longer than a year": {"99999999999999", at, seen, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ExpiryOf(&amqp091.Delivery{Expiration: row.expiration, Timestamp: row.stamp}, row.seen); !got.Equal(row.want) {
				t.Errorf("%v, want %v", got, row.want)
			}
		})
	}
}

// A retry counts the expiration from the first failure if the timestamp cannot be when the message was published.
func TestARetryCountsFromAPlausibleTime(t *testing.T) {
	failed := time.Unix(1_800_000_000, 0)
	for name, row := range map[string]struct{ stamp, want time.Time }{
		"earlier":      {failed.Add(-time.Hour), failed.Add(-time.Hour)},
		"later":        {failed.Add(time.Hour), failed},
		"none":         {time.Time{}, failed},
		"milliseconds": {time.Unix(1_700_000_000_123, 0), failed},
	} {
		st := redeliver.State{FirstFailed: failed, Source: redeliver.Source{Timestamp: row.stamp}}
		if got := FirstSeen(&st); !got.Equal(row.want) {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}

// The earlier of the expiry in the header and the expiration counts. The header may be an AMQP time too.
func TestEarlierExpiryCounts(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	for name, row := range map[string]struct {
		header     any
		expiration string
		want       time.Time
	}{
		"header":          {at.Add(time.Hour).UTC().Format(time.RFC3339), "", at.Add(time.Hour)},
		"a time":          {at.Add(time.Hour), "", at.Add(time.Hour)},
		"header first":    {at.Add(time.Second), "60000", at.Add(time.Second)},
		"expiration":      {at.Add(time.Hour), "60000", at.Add(61 * time.Second)},
		"header is wrong": {int64(7), "60000", at.Add(61 * time.Second)},
	} {
		d := &amqp091.Delivery{Headers: amqp091.Table{redeliver.HeaderExpires: row.header}, Expiration: row.expiration, Timestamp: at}
		if got := ExpiryOf(d, at); !got.Equal(row.want) {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

// The headers of RabbitMQ about an earlier dead-lettering are at the first attempt only, as the docs say: an x-death that names the target of
// a dead-lettering counts as a cycle, so no copy may have one.
func TestACopyHasNothingThatTheBrokerWrote(t *testing.T) {
	st := redeliver.State{ID: "a", Group: "orders", Origin: "orders", Attempts: 1}
	theirs := amqp091.Table{"x-death": []any{amqp091.Table{"queue": "orders"}}, "x-first-death-queue": "orders", "x-last-death-reason": "expired", "x-delivery-count": int64(2)}
	r := Record{Delivery: amqp091.Delivery{Headers: maps.Clone(theirs)}}
	r.Headers["mine"] = "1"
	for name, p := range map[string]amqp091.Publishing{"a retry": r.Publishing(&st), "a dead letter": r.DeadCopy(&st, 0), "a replay": PlainCopy(&r.Delivery)} {
		for header := range theirs {
			if _, there := p.Headers[header]; there {
				t.Errorf("%s has %s", name, header)
			}
		}
		if p.Headers["mine"] != "1" {
			t.Errorf("%s lost a header of the producer", name)
		}
	}
}
