package engine

import "sync"

// registry is a set of functions. The zero registry is empty. It is safe for concurrent use. The functions must not use the registry.
type registry[F any] struct {
	mu  sync.Mutex
	all map[*F]struct{}
}

func (r *registry[F]) add(f F) (remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[*F]struct{})
	}
	r.all[&f] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, &f)
	}
}

// wakes is a set of functions that wake goroutines, and must not block.
type wakes struct{ registry[func()] }

func (w *wakes) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.all {
		(*f)()
	}
}
