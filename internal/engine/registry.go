package engine

import "sync"

// registry is a set of functions, which each calls. The zero registry is empty. It is safe for concurrent use. The functions must
// not use the registry.
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

func (r *registry[F]) each(do func(F)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for f := range r.all {
		do(*f)
	}
}

// wakes is a set of functions that wake goroutines, and must not block.
type wakes struct{ registry[func()] }

func (w *wakes) wake() { w.each(func(wake func()) { wake() }) }
