package kafkaworld

import (
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/integration/worlds/live"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// countDenials counts the requests of all processes while a right is denied. The function that it returns gives the right back.
func (d *Driver) countDenials(o plan.Word, handle *kfake.FaultHandle) (heal func()) {
	from, key := time.Now(), o.Keys[0]
	d.mu.Lock()
	counted := maps.Clone(d.processes)
	d.mu.Unlock()
	for _, m := range counted {
		m.count(1)
	}
	return func() {
		handle.Remove()
		var all []live.Denial
		for name, m := range counted {
			if n, first := m.sentSince(key, from); n > 0 && handle.Hits() > 0 {
				all = append(all, live.Denial{First: first, Process: name, Request: kmsg.Key(key).Name(), Count: n})
			}
			m.count(-1)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.denials = append(d.denials, all...)
	}
}

// Denials implements live.Denier.
func (d *Driver) Denials() []live.Denial {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.denials
	d.denials = nil
	return all
}
