package reader

import (
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// Begin implements [engine.Gater].
func (s *source) Begin(m *driver.Message[*sarama.ConsumerMessage]) engine.Admission {
	if s.progress.IsTooFar(m.Seq) {
		s.spanFull = true // Settle makes the lane ask again
		return engine.NotYet
	}
	if s.keys != nil {
		if admission := s.keys.Begin(m, s.records.At(m.Seq).queuedCopy(), s.heldCount < softMaxHeld/8); admission != engine.Begins {
			return admission
		}
	}
	if s.onLevel && (s.keys == nil || m.Step == driver.StepHandle) { // a message that its key makes hop is not due
		now := time.Now()
		if cmd := s.r.commands.Current().FindCancel(m, s.records.At(m.Seq).waiting.written, s.level, now); cmd != nil {
			m.Step, m.Err = driver.StepDeadLetter, cmd.Cancelled()
		}
	}
	admission := s.progress.Begin(m)
	if admission == engine.Begins {
		s.removeBytes(m)
	}
	return admission
}

// HandlerEnded implements [engine.Gater].
func (s *source) HandlerEnded(m *driver.Message[*sarama.ConsumerMessage]) { s.progress.HandlerEnded(m) }

// End implements [engine.Gater].
func (s *source) End(m *driver.Message[*sarama.ConsumerMessage], how engine.Ending) {
	s.progress.Ended(m, how)
	if s.keys != nil {
		s.keys.Ended(m, s.records.At(m.Seq).queuedCopy(), how)
	}
}
