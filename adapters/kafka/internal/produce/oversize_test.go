package produce

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/IBM/sarama"
)

// While one write makes the producer of large records, which may take as long as the cluster is away, another waits for it only
// until its context ends.
func TestTheWaitForTheProducerOfLargeRecordsEnds(t *testing.T) {
	t.Parallel()
	making, over := make(chan struct{}), make(chan struct{})
	errAway := errors.New("the cluster is away")
	p := &Producer{maxRecordBytes: 10, oversizeTurn: make(chan struct{}, 1), newOversize: func() (*Producer, error) {
		close(making)
		<-over
		return nil, errAway
	}}
	large := &sarama.ProducerMessage{Topic: "orders", Value: sarama.StringEncoder(strings.Repeat("x", 100))}
	first := make(chan error, 1)
	go func() { first <- p.Send(t.Context(), &Write{}, large, 0) }()
	<-making
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Send(ctx, &Write{}, large, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("the second write ends with %v, want the end of its context", err)
	}
	close(over)
	if err := <-first; !errors.Is(err, errAway) {
		t.Errorf("the first write ends with %v", err)
	}
}
