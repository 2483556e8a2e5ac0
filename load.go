package redeliver

// Load is how many messages a subscription has in hand, in this process.
type Load struct {
	// InFlight counts the messages that have a slot of MaxInFlight or MaxRetriesInFlight, until they are settled: a handler runs
	// or is about to run, a batch gathers them, or they are written to a level or the DLQ.
	InFlight int
	// Held counts the messages that were read and have no slot: they wait for their time, for a message of their key or group
	// before them, or for a slot.
	Held int
}

// LoadSink is a Sink that asks subscriptions for their Load when it needs it, for a gauge that costs the messages nothing.
type LoadSink interface {
	Sink
	// Watch is called when a subscription begins to read, even if it cannot reach its broker, and end when the
	// subscription has ended. A program may have several subscriptions of one origin and group. load may be called at
	// any time, also after the end, from many goroutines. It is quick, and takes no lock that is held during Event, so
	// it may be called while a lock is held that Event takes.
	//
	// Watch must not block: the subscription begins when it has returned. end may be nil. A panic of either is ignored.
	Watch(origin, group string, load func() Load) (end func())
}

// Watch implements [LoadSink] with all sinks that do. A panic of one does not keep the others from watching.
func (all sinkList) Watch(origin, group string, load func() Load) (end func()) {
	var ends []func()
	for _, s := range all {
		if w, ok := s.(LoadSink); ok {
			ignorePanic(func() {
				if end := w.Watch(origin, group, load); end != nil {
					ends = append(ends, end)
				}
			})
		}
	}
	return func() {
		for _, end := range ends {
			ignorePanic(end)
		}
	}
}

// ignorePanic calls f and ignores a panic of it.
func ignorePanic(f func()) {
	defer func() { _ = recover() }()
	f()
}
