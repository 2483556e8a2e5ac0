package amqp

// What an entry needs to begin is a slot of its lane, a part in the client's turn, and
// room under the subscription's throttle.

// prepare makes sure that next stands, if something is ready, a slot is free and
// it is this lane's turn.
func (l *lane) prepare() bool {
	for l.next == nil {
		if l.idle() || l.shut() || l.tired {
			l.unslot()
			l.flight.Yield()
			return false
		}
		if !l.slot {
			select {
			case l.slots <- struct{}{}:
				l.slot = true
			default:
				return false
			}
		}
		if !l.begins() {
			return false
		}
		e := l.alone
		if l.alone = nil; e == nil {
			e = l.ready.Pop()
		}
		l.slot = false
		e.slotted.Store(true)
		e.busy.Store(l.kind != suspectQueue && e.solo == nil)
		l.flight.Begin(e)
		if e.then != toHandler {
			l.pass(e)
		} else if l.unpack(e) {
			l.next = e
		}
	}
	return true
}

// begins takes what else the next entry needs: a part in the turn of the others, and
// room under the throttle. It keeps neither while it waits for the other, nor a slot
// while it waits for room: what waits in place has room, and needs the slot and the
// turn. A suspect has its turn, for which all of them wait.
func (l *lane) begins() bool {
	turn := l.r.client.turn
	switch {
	case l.kind == suspectQueue: // it has its turn, and nothing bounds it
	case l.alone != nil:
		l.flight.Squeeze()
	case !turn.Begin():
		l.flight.Yield()
		return false
	case !l.flight.Room():
		turn.Rest()
		l.unslot()
		return false
	}
	return true
}

// idle tells whether nothing is ready.
func (l *lane) idle() bool {
	if l.alone == nil {
		select {
		case l.alone = <-l.secluded:
		default:
		}
	}
	return l.alone == nil && l.ready.Empty()
}

// shut tells whether the gate is closed for what begins next. It may have closed while a
// suspect took its turn, in which that must not lie here unrun: it would be charged if
// the process died, and holds up the client. In its place it gives the turn back until
// the gate is open. One from the queue of suspects runs all the same: it could go back
// only by a write, and there is only one.
func (l *lane) shut() bool {
	if l.kind == suspectQueue || !l.r.sub.Gate.Closed() {
		return false
	}
	if e := l.alone; e != nil {
		l.alone = nil
		l.solos.Go(func() {
			e.solo.end(false)
			l.seclude(e)
		})
	}
	return true
}

// unslot gives back a slot for which there is nothing any more: the other lanes
// wait for it.
func (l *lane) unslot() {
	if l.slot {
		l.slot = false
		<-l.slots
	}
}

// full returns what is closed once the throttle has room; nil when it has some, or
// nothing has to wait for that.
func (l *lane) full() <-chan struct{} {
	if l.alone != nil {
		return nil
	}
	more := l.flight.More()
	select {
	case <-more:
		return nil
	default:
		return more
	}
}
