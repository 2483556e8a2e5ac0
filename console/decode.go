package console

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// maxDecodeTime is the timeout of a [Decoder], which may query a schema registry.
const maxDecodeTime = 3 * time.Second

// Decoder converts the body of a message to readable JSON. It returns a nil Decoded.JSON if it does not know the encoding. If it
// returns an error, the page shows the error beside the body. It must be safe for concurrent use, and must not modify its
// arguments.
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
	ctx, cancel := context.WithTimeout(ctx, maxDecodeTime)
	defer cancel()
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
	if !json.Valid(decoded.JSON) {
		return nil, "the decoder returned invalid JSON"
	}
	p = newPayload(decoded.JSON)
	p.Kind = tableText(decoded.As)
	return p, ""
}
