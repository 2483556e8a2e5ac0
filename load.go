package redeliver

// Load is how many messages a subscription has in hand, in this process.
type Load struct {
	// InFlight are those that have a place of MaxInFlight or MaxRetriesInFlight: a handler
	// runs or is about to, a batch gathers them, or they are being written to where they wait
	// or to the DLQ. They are until they are settled.
	InFlight int
	// Held are those that were read and have no such place: they wait here for their time,
	// for one before them of their key or group, or for a place.
	Held int
}

// Watching is a Sink that asks subscriptions what they have in hand, when somebody wants to
// know it: a gauge that is read now and then costs the messages nothing.
type Watching interface {
	Sink
	// Watch is called when a subscription begins to read, and end when it has ended; a
	// subscription that reads in vain has begun. A program may have several of one origin and
	// group. load may be called at any time, also after the end, from many goroutines; it is
	// quick, and counts nothing that has ended. It takes no lock that is held while a sink is
	// told, so it may be called under a lock that Event takes, too.
	//
	// Watch must not block: the subscription does not begin before it has returned. end may be
	// nil, for who need not know. Of either a panic ends nothing: who panics is not heard.
	Watch(origin, group string, load func() Load) (end func())
}

// Watch implements [Watching]: those of the sinks that watch do, and one that panics keeps
// no other from it.
func (all sinkList) Watch(origin, group string, load func() Load) (end func()) {
	var ends []func()
	for _, s := range all {
		if w, ok := s.(Watching); ok {
			apart(func() {
				if end := w.Watch(origin, group, load); end != nil {
					ends = append(ends, end)
				}
			})
		}
	}
	return func() {
		for _, end := range ends {
			apart(end)
		}
	}
}

// apart calls what is somebody else's, and goes on when that panics.
func apart(f func()) {
	defer func() { _ = recover() }()
	f()
}
