// Package otel exports traces and metrics through OpenTelemetry's API. A [Tracer] puts a span around each run of a
// handler, and links it to the previous attempt and to the publisher's span. A [Sink] counts the events of a client.
// [WatchDLQs] has gauges of DLQs. Each works without the others.
//
// Names and attributes follow OpenTelemetry's semantic conventions for messaging, v1.44.0, where they exist; the others
// begin with "redeliver.". In Prometheus the metrics have the names of observe/prom.
//
// The service chooses SDK and exporter, with otel.SetTracerProvider and the like, or in the configurations here.
package otel

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of the instrumentation.
const scope = "github.com/redeliver/redeliver/observe/otel"

// The attributes. Those of the semantic conventions are in the order of their pages.
const (
	attrSystem     = attribute.Key("messaging.system")
	attrOperation  = attribute.Key("messaging.operation.name")
	attrType       = attribute.Key("messaging.operation.type")
	attrDest       = attribute.Key("messaging.destination.name")
	attrPartition  = attribute.Key("messaging.destination.partition.id")
	attrGroupName  = attribute.Key("messaging.consumer.group.name")
	attrMessageID  = attribute.Key("messaging.message.id")
	attrBatchCount = attribute.Key("messaging.batch.message_count")
	attrKafkaOff   = attribute.Key("messaging.kafka.offset")
	attrErrorType  = attribute.Key("error.type")

	attrOrigin   = attribute.Key("redeliver.origin")
	attrGroup    = attribute.Key("redeliver.group")
	attrAttempt  = attribute.Key("redeliver.attempt")
	attrReplays  = attribute.Key("redeliver.replays")
	attrOutcome  = attribute.Key("redeliver.outcome")
	attrReason   = attribute.Key("redeliver.reason")
	attrDue      = attribute.Key("redeliver.due")
	attrError    = attribute.Key("redeliver.error")
	attrErrType  = attribute.Key("redeliver.error_type")
	attrFirstErr = attribute.Key("redeliver.first_error")
	attrLink     = attribute.Key("redeliver.link")
	attrRetry    = attribute.Key("redeliver.retry")
	attrLevel    = attribute.Key("redeliver.level")
	attrTrouble  = attribute.Key("redeliver.trouble")
	attrDLQ      = attribute.Key("redeliver.dlq")
	attrExact    = attribute.Key("redeliver.exact")
	attrTaskKind = attribute.Key("redeliver.task.kind")
	attrTaskStat = attribute.Key("redeliver.task.status")
	attrTaskOut  = attribute.Key("redeliver.task.outcome")
)

// The operations.
const (
	opProcess    = "process"     // a handler's run
	opDeadLetter = "dead_letter" // a write to the DLQ
	typeSend     = "send"
)

// place is a subscription.
type place struct{ origin, group string }

// cache keeps values by key. Creating them for each message would be most of the cost. It has no bound: keys are few.
type cache[K comparable, E any] struct {
	make func(K) *E

	mu  sync.RWMutex
	all map[K]*E
}

func (c *cache[K, E]) of(key K) *E {
	c.mu.RLock()
	e := c.all[key]
	c.mu.RUnlock()
	if e != nil {
		return e
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e = c.all[key]; e == nil {
		if e = c.make(key); c.all == nil {
			c.all = make(map[K]*E)
		}
		c.all[key] = e
	}
	return e
}

// subscription returns the attributes that identify a subscription.
func subscription(system string, p place) []attribute.KeyValue {
	return []attribute.KeyValue{attrSystem.String(system), attrDest.String(p.origin), attrGroupName.String(p.group)}
}

// with returns a set of attributes as an option that can be used repeatedly.
func with(kvs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(kvs...))
}

var kinds = struct{ consumer, producer trace.SpanStartOption }{
	trace.WithSpanKind(trace.SpanKindConsumer), trace.WithSpanKind(trace.SpanKindProducer),
}
