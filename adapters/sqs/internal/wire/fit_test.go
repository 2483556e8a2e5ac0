package wire

import (
	"encoding/base64"
	"maps"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"pgregory.net/rapid"
)

// Parts of any message fit into the DLQ, and their bodies join to the message's body.
func TestPartsFitAndJoinToTheBody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st, attributes := anyState(t), anyAttributes(t)
		st.Truncated = "1 sha256:00"
		body := rapid.StringOfN(rapid.RuneFrom([]rune("azé😀")), 1, 4000, -1).Draw(t, "body")
		binary := rapid.Bool().Draw(t, "binary")
		if binary {
			attributes = maps.Clone(attributes)
			if attributes == nil {
				attributes = make(map[string]types.MessageAttributeValue)
			}
			attributes[EncodedAttribute] = TextAttribute(`{"body":"base64"}`)
			body = base64.StdEncoding.EncodeToString([]byte(body))
		}
		r := recordOfParts(body, attributes, nil)
		r.Keys = Keys{[]byte("sixteen bytes...")}
		want := string(r.PublishedBody())
		size := rapid.SampledFrom([]int{MinMessageSize, 2048, 4096}).Draw(t, "size")
		joined := ""
		for _, o := range r.DeadParts(&st, size, false) {
			if o.Size() > size || o.Body == "" || !IsValidText(o.Body) {
				t.Fatalf("a part has %d bytes, body %q, at most %d are allowed", o.Size(), o.Body, size)
			}
			part := recordOfParts(o.Body, o.Attributes, nil)
			joined += string(part.PublishedBody())
		}
		if joined != want {
			t.Fatalf("the parts have %d bytes together, want %d", len(joined), len(want))
		}
	})
}
