package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// maxDecodeTime is the timeout of a [Decoder], which may query a schema registry. maxDecodeBody bounds the bodies that it
// gets, and maxDecoded its results, in bytes.
const (
	maxDecodeTime = 3 * time.Second
	maxDecodeBody = maxIndent
	maxDecoded    = 1 << 20
)

// Decoder converts the body of a message to readable JSON. It returns a nil Decoded.JSON if it does not know the encoding. If it
// returns an error, the page shows the error beside the body. It is called by one page at a
// time, with bodies of at most 256 KiB, and must not modify its arguments. A JSON of more than 1 MiB is not shown.
//
// A Decoder must bound what it makes of a body before it allocates that: producers choose the body, and in many formats a
// byte can become a large value. It must end when ctx ends.
type Decoder func(ctx context.Context, body []byte, headers []deadletter.Header) (Decoded, error)

// Decoded is the result of a [Decoder].
type Decoded struct {
	JSON []byte
	// As names the format of the body, such as "Avro, schema 7, shop.Order".
	As string
}

// decodeBody decodes a body that is shown whole. A partial body is not valid in any encoding.
func (svc *service) decodeBody(ctx context.Context, l *messageView) (p *payloadView, problem string) {
	if svc.cfg.Decode == nil || !l.Shown || !l.Whole || len(l.Body) == 0 {
		return nil, ""
	}
	if n := len(l.Body); n > maxDecodeBody {
		return nil, fmt.Sprintf("a body of %d bytes is not decoded; at most %d are", n, maxDecodeBody)
	}
	ctx, cancel := context.WithTimeout(ctx, maxDecodeTime)
	defer cancel()
	select {
	case svc.decodeSlot <- struct{}{}:
		defer func() { <-svc.decodeSlot }()
	case <-ctx.Done():
		return nil, "other bodies are being decoded; try again"
	}
	headers := make([]deadletter.Header, len(l.Headers))
	for i, h := range l.Headers {
		headers[i] = deadletter.Header{Name: h.Name, Value: h.Value}
	}
	var decoded Decoded
	err := catchPanic("decoder", func() (err error) {
		decoded, err = svc.cfg.Decode(ctx, bytes.Clone(l.Body), headers)
		return err
	})
	if err != nil {
		return nil, escapeInvisible(truncate(err.Error(), maxLine))
	}
	if decoded.JSON == nil {
		return nil, ""
	}
	if n := len(decoded.JSON); n > maxDecoded {
		return nil, fmt.Sprintf("its JSON has %d bytes; at most %d are shown", n, maxDecoded)
	}
	if !json.Valid(decoded.JSON) {
		return nil, "the decoder returned invalid JSON"
	}
	p = newPayload(decoded.JSON)
	p.Kind = tableText(decoded.As)
	return p, ""
}
