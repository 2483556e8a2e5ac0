package console

import (
	"net/http"
	"sync"
	"time"
)

const (
	// maxStreams is the maximum number of pages that are kept up to date at once.
	maxStreams = 64
	// maxStreamsOfOne is the maximum number of streams per user name and address.
	maxStreamsOfOne = 8
	// streamPause is the minimum time between two events to one page.
	streamPause = time.Second
	// keepAliveInterval is the interval of the keep-alives, which show the page and any proxies that the server is alive.
	keepAliveInterval = 15 * time.Second
	// maxStreamWrite is the write timeout of one event.
	maxStreamWrite = 10 * time.Second
)

// hub notifies open pages that something has changed. A page then requests its content again, with the rights of its user.
type hub struct {
	mu      sync.Mutex
	streams map[chan struct{}]string // the value is the user name and address
}

func newHub() *hub { return &hub{streams: make(map[chan struct{}]string)} }

// notify notifies all pages. It never blocks.
func (h *hub) notify() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams {
		select {
		case s <- struct{}{}:
		default: // the page has not read the last notification yet
		}
	}
}

func (h *hub) subscribe(user string) (s chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	same := 0
	for _, other := range h.streams {
		if other == user {
			same++
		}
	}
	if len(h.streams) >= maxStreams || same >= maxStreamsOfOne {
		return nil, false
	}
	s = make(chan struct{}, 1)
	h.streams[s] = user
	return s, true
}

func (h *hub) unsubscribe(s chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, s)
}

// events sends a stream of server-sent events. They say "changed", but not what.
func (c *Console) events(w http.ResponseWriter, r *http.Request) {
	who := actorOf(r)
	if err := c.svc.checkRight(who.withHighestRole(), ActionLook); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	from, _ := remoteAddress(r)
	s, ok := c.svc.hub.subscribe(who.Name + " " + from.String())
	if !ok {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many pages are kept up to date already", http.StatusServiceUnavailable)
		return
	}
	defer c.svc.hub.unsubscribe(s)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy that buffers would delay the events
	out := http.NewResponseController(w)
	keepAlive := time.NewTicker(keepAliveInterval)
	defer keepAlive.Stop()
	for word := "retry: 3000\nevent: hello\ndata: {}\n\n"; ; {
		_ = out.SetWriteDeadline(time.Now().Add(maxStreamWrite)) // not all servers support deadlines
		if _, err := w.Write([]byte(word)); err != nil || out.Flush() != nil {
			return
		}
		if !c.sleep(r, streamPause) {
			return
		}
		select {
		case <-s:
			word = "event: changed\ndata: {}\n\n"
		case <-keepAlive.C:
			word = ": still here\n\n"
		case <-r.Context().Done():
			return
		case <-c.svc.ctx.Done():
			return
		}
	}
}

// sleep waits for d. It returns false if the request or the console has ended.
func (c *Console) sleep(r *http.Request, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	case <-c.svc.ctx.Done():
		return false
	}
}
