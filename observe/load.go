package observe

import "github.com/redeliver/redeliver"

// Load counts the messages that a subscription has read in this process and not settled.
type Load struct {
	// InFlight counts the messages that use MaxInFlight or MaxRetriesInFlight, until they are settled: their handler runs or is
	// about to run, a batch gathers them, or they are written to a level or the DLQ.
	InFlight int
	// Held counts the others: they wait until they are due, for an earlier message of their key or message group, or until they
	// may begin.
	Held int
}

// LoadSink is a Sink that asks subscriptions for their Load when it needs it, so a gauge costs the messages nothing.
type LoadSink interface {
	redeliver.Sink
	// Watch is called when a subscription begins to read, even if it cannot reach its broker. The function end, which may be
	// nil, is called when the subscription has ended. A program may have several subscriptions of one origin and group.
	//
	// The sink may call load at any time, also after end, and from many goroutines. load is quick. It may be called while the
	// sink holds a lock that its Event locks.
	//
	// Watch must not block: the subscription begins only when it has returned. A panic of Watch or end is ignored.
	Watch(origin, group string, load func() Load) (end func())
}

// Watch implements [LoadSink]: it calls Watch of every sink that has it, also if one panics.
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

func ignorePanic(f func()) {
	defer func() { _ = recover() }()
	f()
}
