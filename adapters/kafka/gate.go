package kafka

import (
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// Begin implements [engine.Gater].
func (s *source) Begin(m *driver.Message[*sarama.ConsumerMessage]) engine.Admission {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ahead := m.Seq - s.track.first; ahead >= maxSpan || ahead >= commitmeta.SureSpan && s.setOverflows {
		s.spanFull = true // Settle makes the lane ask again
		return engine.NotYet
	}
	if s.keys != nil {
		if admission := s.keys.ask(m); admission != engine.Begins {
			return admission
		}
	}
	if s.level != nil && (s.keys == nil || m.Step == driver.Handle) { // keys.ask does not ask the queue about a message that hops
		now := time.Now()
		if cmd := s.r.commands.Current().Canceling(m, s.track.record(m.Seq).waiting.written, s.level.level, now); cmd != nil {
			m.Step, m.Err = driver.Bury, cmd.Cancelled()
		}
	}
	word := s.crashes.begin(m)
	if word == engine.Begins {
		s.removeBytes(m)
	}
	return word
}

// HandlerEnded implements [engine.Gater].
func (s *source) HandlerEnded(m *driver.Message[*sarama.ConsumerMessage]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashes.handlerEnded(m)
}

// End implements [engine.Gater].
func (s *source) End(m *driver.Message[*sarama.ConsumerMessage], how engine.Ending) {
	s.mu.Lock()
	s.crashes.messageEnded(m, how.How)
	s.mu.Unlock()
	if s.keys != nil {
		s.keys.messageEnded(m, how)
	}
}
