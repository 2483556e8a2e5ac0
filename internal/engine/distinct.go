package engine

import (
	"fmt"
	"iter"
	"slices"

	"github.com/redeliver/redeliver/internal/check"
)

// Places names the topics or queues of one subscription.
type Places struct {
	Origin string   // what it reads, in the words of the configuration
	Read   string   // the name of that topic or queue on the broker; "" is Origin
	DLQ    string   // "" for none
	Own    []string // the others that only redeliver writes
}

// CheckDistinct refuses names of redeliver's topics or queues that a subscription uses twice, or that another
// subscription of the client uses, too. Else one would run the other's retries, with the wrong handler. But a service
// may read its own DLQ. Subscriptions with the same Origin are one. adapter begins the error.
func CheckDistinct[L interface{ Places() Places }](adapter string, l L, others iter.Seq[L]) error {
	var ps check.Problems
	p := l.Places()
	own := p.own()
	for i, name := range own {
		if name == p.read() || slices.Contains(own[:i], name) {
			ps.Add("Names", name, fmt.Sprintf("must differ from the names of %s and of redeliver's other places beside it", p.Origin))
		}
	}
	for l := range others {
		other := l.Places()
		if other.Origin == p.Origin {
			continue
		}
		for _, name := range p.shared(other) {
			ps.Add("Names", name, fmt.Sprintf("must differ for every topic or queue: %s and %s would share it", other.Origin, p.Origin))
		}
	}
	if err := ps.Err(); err != nil {
		return fmt.Errorf("%s: %w", adapter, err)
	}
	return nil
}

// shared returns the names that two subscriptions must not share.
func (p Places) shared(other Places) (names []string) {
	theirs := other.own()
	for _, name := range p.own() {
		if slices.Contains(theirs, name) || name == other.read() && name != p.DLQ {
			names = append(names, name)
		}
	}
	if name := p.read(); name != other.DLQ && slices.Contains(theirs, name) {
		names = append(names, name)
	}
	return names
}

func (p Places) read() string {
	if p.Read == "" {
		return p.Origin
	}
	return p.Read
}

// own returns the names that only redeliver writes.
func (p Places) own() []string {
	if p.DLQ == "" {
		return p.Own
	}
	return append(slices.Clip(p.Own), p.DLQ)
}
