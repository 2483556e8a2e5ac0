package rabbitmqworld

import (
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver/integration/worlds/live"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

var _ live.Deleter = (*Driver)(nil)

// queueOf returns the queue that a word deletes, or "" if there is none.
func (d *Driver) queueOf(o plan.Word) (string, error) {
	switch o.What {
	case plan.DeleteOrigin:
		return o.Topic, nil
	case plan.DeleteRetry:
		return o.Topic + ".retry", nil
	case plan.DeleteDLQ:
		return o.Topic + ".dlq", nil
	}
	names, err := d.admin.queues()
	if err != nil {
		return "", err
	}
	levels := slices.DeleteFunc(names, func(name string) bool {
		level, ok := strings.CutPrefix(name, o.Topic+".retry.")
		return !ok || level == "suspects" || level == "paused" || level == "place"
	})
	if len(levels) == 0 {
		return "", nil
	}
	slices.Sort(levels)
	return levels[o.Count%len(levels)], nil
}

// remove deletes a queue. An administrator declares the origin again; redeliver declares its own queues.
func (d *Driver) remove(o plan.Word) (heal func(), err error) {
	queue, err := d.queueOf(o)
	if err != nil || queue == "" {
		return nil, err
	}
	if err := d.admin.deleteQueue(queue); err != nil {
		return nil, err
	}
	d.note(o.Topic, queue)
	if o.What != plan.DeleteOrigin {
		return nil, nil
	}
	return func() {
		for d.declareAgain() != nil {
			time.Sleep(time.Second)
		}
	}, nil
}

// declareAgain declares the origin on a channel of its own.
func (d *Driver) declareAgain() error {
	ch, err := d.conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close()
	return d.declare(ch)
}

// note records that each message written so far may have been in a deleted queue. The events show which were not.
func (d *Driver) note(origin, queue string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := live.Copy{At: time.Now(), Topic: queue, Place: queue + "/"}
	if queue != origin {
		c.Group = d.world.Services[0].Group
	}
	for _, c.Body = range d.written {
		d.deleted = append(d.deleted, c)
	}
}

// Deleted implements live.Deleter.
func (d *Driver) Deleted() []live.Copy {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.deleted
	d.deleted = nil
	return all
}
