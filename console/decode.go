package console

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// decodeTime bounds how long a [Decoder] may take: it may ask a schema registry.
const decodeTime = 3 * time.Second

// Decoder turns the body of a message into JSON for people if it knows the encoding. Otherwise
// Decoded.JSON is nil. The page shows an error beside the body. It must be safe for concurrent use,
// and must not change the bytes that it gets.
type Decoder func(ctx context.Context, body []byte, headers []deadletter.Header) (Decoded, error)

// Decoded is a body that a [Decoder] has read.
type Decoded struct {
	JSON []byte
	// As names the format of the body: "Avro, schema 7, shop.Order".
	As string
}

// decode reads a body that is shown whole. A part of one is no encoding of anything.
func (d *desk) decode(ctx context.Context, l *Letter) (p *Payload, trouble string) {
	if d.cfg.Decode == nil || !l.Shown || !l.Whole || len(l.Body) == 0 {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(ctx, decodeTime)
	defer cancel()
	headers := make([]deadletter.Header, len(l.Headers))
	for i, h := range l.Headers {
		headers[i] = deadletter.Header{Name: h.Name, Value: h.Value}
	}
	var decoded Decoded
	err := catchPanic("decoder", func() (err error) {
		decoded, err = d.cfg.Decode(ctx, bytes.Clone(l.Body), headers)
		return err
	})
	if err != nil {
		return nil, visible(cut(err.Error(), shownLine))
	}
	if decoded.JSON == nil {
		return nil, ""
	}
	if !json.Valid(decoded.JSON) {
		return nil, "the decoder gave no JSON"
	}
	p = newPayload(decoded.JSON)
	p.Kind = line(decoded.As)
	return p, ""
}
