package console

import (
	"bytes"
	"testing"

	"github.com/redeliver/redeliver/deadletter"
)

// A list used to keep whole keys, and with them the messages that contain them.
func TestAListKeepsOfAKeyWhatALineShows(t *testing.T) {
	d := &desk{}
	for _, key := range [][]byte{nil, {}, []byte("k"), bytes.Repeat([]byte("ä"), 1<<20)} {
		r := d.listed(Actor{Role: Operator}, &openQueue{}, &deadletter.Message{Key: key})
		if cap(r.Key) > 2*shownLine || line(r.Key) != line(key) || (r.Key == nil) != (key == nil) || r.HasKey != (key != nil) {
			t.Errorf("of a key of %d bytes it keeps %d and shows %s", len(key), cap(r.Key), line(r.Key))
		}
	}
}
