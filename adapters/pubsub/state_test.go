package pubsub

import (
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// A packed state can be read again and is printable ASCII.
func TestStateRoundTrip(t *testing.T) {
	own := "mine \xff\x00"
	now := time.Date(2026, 11, 21, 12, 0, 0, 5_000_000, time.UTC)
	st := redeliver.State{ID: "ü\u2028😀", Group: "billing", Origin: "orders", Attempts: 3, Due: now, Error: "a\n\"b\"\\ é 😀", ErrorType: "x", FirstError: "b\n"}
	c := carried{headers: driver.AppendStateHeaders(st, nil), until: now, publish: true, own: &own}
	text, err := c.pack()
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("packed as %q", text)
	}
	read, ok := unpack(text)
	if !ok || !read.until.Equal(now) || !read.publish || read.own == nil || *read.own != own {
		t.Fatalf("read %+v, %t", read, ok)
	}
	back, found := driver.ParseHeaders("billing", read.headers)
	if len(found) > 0 || back.ID != st.ID || back.Error != st.Error || back.FirstError != st.FirstError || !back.Due.Equal(st.Due) || back.Attempts != 3 {
		t.Errorf("read %+v, findings %v", back, found)
	}
}

func FuzzUnpack(f *testing.F) {
	for _, text := range []string{``, `{}`, `null`, `[]`, `{"attempt":3}`, `{"attempt":"3","until":"soon","own":"%"}`, `{"until":"9999-12-31T23:59:59.999Z"}`, `{"own":"` + "\xff" + `"}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := unpack(text)
		if !ok {
			return
		}
		packed, err := c.pack()
		if err != nil {
			t.Fatal(err)
		}
		if again, ok := unpack(packed); !ok || len(again.headers) > len(c.headers) || !again.until.Equal(limits.CeilMilli(c.until)) {
			t.Errorf("%q is packed as %q and read as %+v", text, packed, again)
		}
	})
}
