package record

import (
	"strconv"
	"strings"
	"testing"

	"github.com/IBM/sarama"
)

// A record of a megabyte has room for sixty thousand headers, and all findings go into one log line.
func TestManyForeignHeadersAreCountedAndNotListed(t *testing.T) {
	t.Parallel()
	const n = 60_000
	name := "redeliver-" + strings.Repeat("a", 1000)
	headers := []*sarama.RecordHeader{nil, {Key: []byte("mine")}}
	for range n {
		headers = append(headers, &sarama.RecordHeader{Key: []byte(name), Value: make([]byte, 1000)})
	}
	size := 0
	found := ForeignHeaders(headers)
	for _, f := range found {
		size += len(f.Header) + len(f.Value) + len(f.Problem)
	}
	if len(found) != 21 || size > 10_000 || !strings.Contains(found[len(found)-1].Problem, strconv.Itoa(n-20)) {
		t.Errorf("%d findings of %d bytes, the last %q; want 20, and a count of the other %d", len(found), size, found[len(found)-1], n-20)
	}
}
