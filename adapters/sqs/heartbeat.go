package sqs

import (
	"maps"
	"slices"
	"time"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/engine"
)

// runHeartbeats keeps all held messages hidden from others until the source ends. A message is lost when its receipt is
// stale, or when no extension has succeeded in time.
func (s *source) runHeartbeats() {
	timeout := s.client.cfg.VisibilityTimeout
	tick := time.NewTicker(min(timeout, maxShortVisibility) / 10)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ended:
			return
		}
		now := time.Now()
		for _, d := range s.allHeld() {
			switch expired, extend := d.checkHiding(now, timeout); {
			case expired:
				// If SQS refuses to hide messages, others would be lost, and run again, in the same way.
				s.layout.operations.Stop(engine.Operation{Name: actionHide, Place: s.queue.Name})
				s.dropLost(d, nil)
			case extend:
				s.visibilityChanger.extend(&d.visibility, func(err error) {
					if err != nil && api.IsStaleReceipt(err) {
						s.dropLost(d, nil)
					}
				})
			}
		}
	}
}

func (s *source) allHeld() []*delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.held))
}

// dropLost drops a message that others may have by now, and all behind it in its group, so that none overtakes it.
// SQS delivers no message of a group while another of it is hidden, so they come again in order. dropLost leaves a
// settled message to its deletion. It calls done, which may be nil, when the lane has abandoned the messages.
func (s *source) dropLost(d *delivery, done func()) {
	if done == nil {
		done = func() {}
	}
	s.mu.Lock()
	if d.gone || d.settled {
		s.mu.Unlock()
		done()
		return
	}
	if s.readsSuspects() {
		s.lostSuspects.Add(d.id) // its next receive is no sign of a crash
	}
	lost := []*delivery{d}
	if line := s.lines[d.group]; d.group != "" {
		lost = append(lost, line[slices.Index(line, d)+1:]...)
	}
	for _, l := range lost {
		s.dropReturnedLocked(l, 0)
	}
	s.mu.Unlock()
	s.intake.wakePollers()
	posted := s.lane.Post(func() {
		for _, l := range slices.Backward(lost) {
			s.abandonLost(l)
			if l != d {
				s.makeVisible(l, 0)
			}
		}
		done()
	})
	if !posted {
		done()
	}
}

// abandonLost removes a lost message from the lane, which may not have it yet.
func (s *source) abandonLost(d *delivery) {
	s.mu.Lock()
	m := d.m
	s.mu.Unlock()
	if m != nil {
		s.lane.Abandon(m, engine.ErrLost)
	}
}
