package binding_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/engine/enginetest"
)

// A failure ends the message that was delivered, also if a middleware has passed on a copy. Nobody else acks it here.
func TestAFailureEndsTheDeliveredMessage(t *testing.T) {
	q := enginetest.New(redeliver.Policy{}).Start(t)
	msg := q.Deliver()
	other := msg.Copy()
	other.SetContext(msg.Context())
	produced, err := binding.Run(engine.FromContext(msg.Context()), func(m *message.Message) ([]*message.Message, error) {
		return []*message.Message{m}, errors.New("no bank")
	}, other)
	q.WaitSettled(1)
	if wrote := q.Written(); err != nil || produced != nil || len(wrote) != 1 || wrote[0].State.Error != "no bank" {
		t.Errorf("produced %v, %v, wrote %+v", produced, err, wrote)
	}
}

// The engine knows of a success only when the message is acked: the Router nacks it if what the handler produced cannot be
// published. That is a failed attempt.
func TestANackAfterASuccessIsAFailure(t *testing.T) {
	q := enginetest.New(redeliver.Policy{}).Start(t)
	msg := q.Deliver()
	produced, err := binding.Run(engine.FromContext(msg.Context()), func(m *message.Message) ([]*message.Message, error) {
		return []*message.Message{m}, nil
	}, msg)
	if err != nil || len(produced) != 1 || len(q.Written()) != 0 {
		t.Errorf("produced %v, %v, wrote %+v", produced, err, q.Written())
	}
	msg.Nack()
	q.WaitSettled(1)
	if wrote := q.Written(); len(wrote) != 1 || wrote[0].State.Attempts != 1 {
		t.Errorf("wrote %+v", wrote)
	}
}

// A middleware may ack a message before another one finds that its handler must not run. Test with -race.
func TestAnEarlyAckMayMeetASkippedHandler(t *testing.T) {
	q := enginetest.New(redeliver.Policy{}).Start(t)
	msg := q.Deliver()
	msg.Ack()
	engine.FromContext(msg.Context()).SkipHandler()
	q.WaitSettled(1)
	if wrote := q.Written(); len(wrote) != 0 {
		t.Errorf("wrote %+v", wrote)
	}
}
