package dlq

import (
	"context"

	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
)

// pagePrefetcher reads the next page while the current one is processed. Only the goroutine of its scan uses it.
type pagePrefetcher struct {
	log  *topiclog.Reader
	stop context.CancelFunc // ends the running read; nil before the first
	ctx  context.Context
	page chan fetched // nil if no read is running
	part logPart      // partition and next of the page
}

type fetched struct {
	page topiclog.Page
	err  error
}

// read returns the next page of a partition, and begins to read the page after it, if there is one. ctx bounds only the
// wait, not the read.
func (a *pagePrefetcher) read(ctx context.Context, part *logPart) (topiclog.Page, error) {
	if a.page == nil || a.part.partition != part.partition || a.part.next != part.next {
		a.close()
		a.begin(ctx, part.partition, part.next)
	}
	var p fetched
	select {
	case p = <-a.page:
		a.page = nil
	case <-ctx.Done():
		return topiclog.Page{}, ctx.Err()
	}
	if p.err != nil {
		return topiclog.Page{}, p.err
	}
	if !p.page.End && p.page.Next < part.end {
		a.begin(ctx, part.partition, p.page.Next)
	}
	return p.page, nil
}

func (a *pagePrefetcher) begin(ctx context.Context, partition int32, next int64) {
	if a.stop == nil {
		a.ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	}
	found := make(chan fetched, 1)
	a.page, a.part = found, logPart{partition: partition, next: next}
	go func() {
		p, err := a.log.Read(a.ctx, partition, next)
		found <- fetched{p, err}
	}()
}

// close ends the running read.
func (a *pagePrefetcher) close() {
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
	if a.page != nil {
		<-a.page
		a.page = nil
	}
}
