package console

import (
	"bytes"
	"testing"

	"github.com/redeliver/redeliver/deadletter"
)

// A list that kept whole keys would keep the messages that contain them.
func TestAListKeepsOnlyTheShownPartOfAKey(t *testing.T) {
	d := &service{}
	for _, key := range [][]byte{nil, {}, []byte("k"), bytes.Repeat([]byte("ä"), 1<<20)} {
		r := d.newListRow(Actor{Role: RoleOperator}, &openQueue{}, &deadletter.Message{Key: key})
		if cap(r.Key) > 2*maxLine || tableText(r.Key) != tableText(key) || (r.Key == nil) != (key == nil) || r.HasKey != (key != nil) {
			t.Errorf("of a key of %d bytes it keeps %d and shows %s", len(key), cap(r.Key), tableText(r.Key))
		}
	}
}
