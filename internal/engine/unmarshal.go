package engine

import (
	"errors"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// Unmarshaler makes Watermill messages from a broker client's records. It may be the user's own.
type Unmarshaler[R any] interface {
	Unmarshal(rec R) (*message.Message, error)
}

// Unmarshal makes the message of a record. A panic and a nil message are errors.
func Unmarshal[R any](m Unmarshaler[R], rec R) (msg *message.Message, err error) {
	defer func() {
		if v := recover(); v != nil {
			msg, err = nil, &redeliver.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	msg, err = m.Unmarshal(rec)
	if err == nil && msg == nil {
		err = errors.New("the marshaler returned no message")
	}
	return msg, err
}
