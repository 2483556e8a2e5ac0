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
	if ahead := m.Seq - s.track.first; ahead >= maxSpan || ahead >= commitmeta.MaxSureSpan && s.setOverflows {
		s.spanFull = true // Settle makes the lane ask again
		return engine.NotYet
	}
	if s.keys != nil {
		if admission := s.keys.Begin(m, s.track.record(m.Seq).queuedCopy(), s.heldCount < softMaxHeld/8); admission != engine.Begins {
			return admission
		}
	}
	if s.onLevel && (s.keys == nil || m.Step == driver.Handle) { // keys let messages that hop begin
		now := time.Now()
		if cmd := s.r.commands.Current().Canceling(m, s.track.record(m.Seq).waiting.written, s.level, now); cmd != nil {
			m.Step, m.Err = driver.Bury, cmd.Cancelled()
		}
	}
	admission := s.crashes.Begin(m)
	if admission == engine.Begins {
		s.removeBytes(m)
	}
	return admission
}

// HandlerEnded implements [engine.Gater].
func (s *source) HandlerEnded(m *driver.Message[*sarama.ConsumerMessage]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashes.HandlerEnded(m)
}

// End implements [engine.Gater].
func (s *source) End(m *driver.Message[*sarama.ConsumerMessage], how engine.Ending) {
	s.mu.Lock()
	s.crashes.Ended(m, how.How)
	s.mu.Unlock()
	if s.keys != nil {
		s.keys.Ended(m, s.track.record(m.Seq).queuedCopy(), how)
	}
}

// crashPartition is a source as its crash.Gate sees it.
type crashPartition struct{ s *source }

func (p crashPartition) Offset(m *driver.Message[*sarama.ConsumerMessage]) int64 {
	return p.s.track.record(m.Seq).offset
}

func (p crashPartition) Mark() int64 { return p.s.track.mark }

func (p crashPartition) Commit(atOnce bool) {
	p.s.dirty = true
	if atOnce {
		p.s.urgent = true
		p.s.commits.commitNow()
	}
}

func (p crashPartition) Idle() {
	if p.s.commits.saramaCommits { // sarama's next commit is of marked offsets only
		p.s.dirty = true
	}
}

func (p crashPartition) Post(f func()) bool {
	return p.s.lane.Post(func() {
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		f()
	})
}

func (p crashPartition) ReportUncounted(err error) {
	p.s.r.reportUncounted(p.s.topic, p.s.partition, err)
}
