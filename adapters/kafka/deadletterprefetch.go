package kafka

import "context"

// deadAhead reads the page behind the one that is looked at, so that who looks need not
// wait for the broker. It belongs to the goroutine of its scan.
type pagePrefetcher struct {
	log  *logReader
	stop context.CancelFunc // ends what is read now; nil before the first
	ctx  context.Context
	page chan deadPage // nil while nothing is read
	part deadPart      // whose page it is: partition and next
}

type deadPage struct {
	page page
	err  error
}

// read returns the page of a partition from its next on, and begins to read the one
// behind it, if that is before the end. ctx bounds the wait alone: what is read goes on.
func (a *pagePrefetcher) read(ctx context.Context, part *deadPart) (page, error) {
	if a.page == nil || a.part.partition != part.partition || a.part.next != part.next {
		a.close()
		a.begin(ctx, part.partition, part.next)
	}
	var p deadPage
	select {
	case p = <-a.page:
		a.page = nil
	case <-ctx.Done():
		return page{}, ctx.Err()
	}
	if p.err != nil {
		return page{}, p.err
	}
	if !p.page.end && p.page.next < part.end {
		a.begin(ctx, part.partition, p.page.next)
	}
	return p.page, nil
}

func (a *pagePrefetcher) begin(ctx context.Context, partition int32, next int64) {
	if a.stop == nil {
		a.ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	}
	found := make(chan deadPage, 1)
	a.page, a.part = found, deadPart{partition: partition, next: next}
	go func() {
		p, err := a.log.read(a.ctx, partition, next)
		found <- deadPage{p, err}
	}()
}

// close ends what is read, which nobody wants any more.
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
