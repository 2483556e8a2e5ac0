package sqs

import (
	"maps"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/sqsfake"
	"github.com/redeliver/redeliver/mq"
)

// fake is an SQS in memory for the clients of a test.
type fake struct {
	*sqsfake.Server
	stopFault func() // of setFault
}

func newFake() *fake { return newFakeWith(sqsfake.Options{}) }

func newFakeWith(o sqsfake.Options) *fake {
	return &fake{Server: sqsfake.New(o), stopFault: func() {}}
}

// client opens a client.
// brokerOf returns the client behind a portable one.
func brokerOf(c *mq.Client) *client {
	b, _ := c.Broker().(*client)
	return b
}

func (f *fake) client(t *testing.T, cfg Config) *mq.Client {
	t.Helper()
	if cfg.Sink == nil {
		cfg.Sink = redeliver.SinkFunc(func(redeliver.Event) {})
	}
	c, err := Open(t.Context(), f.config(cfg))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// config returns a configuration that uses the server.
func (f *fake) config(cfg Config) Config {
	cfg.AWS, cfg.Endpoint = f.Connect("").Config(), sqsfake.Endpoint
	return cfg
}

// setFault replaces the fault of requests; nil removes it.
func (f *fake) setFault(fault func(*sqsfake.Call) *sqsfake.Fault) {
	f.stopFault()
	f.stopFault = func() {}
	if fault != nil {
		f.stopFault = f.Inject(fault)
	}
}

// put writes a message as another program would.
func (f *fake) put(queue, uuid, body, group string, attributes map[string]sqsfake.Attribute) string {
	m := sqsfake.Message{Body: body, Group: group, Attributes: map[string]sqsfake.Attribute{}}
	maps.Copy(m.Attributes, attributes)
	if uuid != "" {
		m.Attributes[UUIDAttribute] = sqsfake.String(uuid)
	}
	if sqsfake.IsFIFO(queue) {
		m.Dedup = "d-" + uuid
	}
	return f.Put(queue, m)
}

// stateOf returns the state in a message's StateAttribute.
func stateOf(t *testing.T, m sqsfake.Message, queue string) redeliver.State {
	t.Helper()
	a, ok := m.Attributes[StateAttribute]
	if !ok {
		t.Fatalf("%s has no state of redeliver's", m.ID)
	}
	c, ok := wire.Unpack(string(a.Value))
	if !ok {
		t.Fatalf("no state: %s", a.Value)
	}
	st, findings := driver.ParseHeaders(queue, c.Headers)
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	return st
}
