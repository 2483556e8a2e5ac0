package settle

// Ring has one value for each record of a partition, from the lowest unsettled one to the last one that was read. It
// numbers records in the order in which they are read, because offsets may have gaps. The zero Ring is empty.
type Ring[T any] struct {
	slots  []T    // its length is a power of two
	lowest uint64 // number of the lowest unsettled record
	next   uint64 // number of the record that is read next
}

// Len returns how many records the ring has.
func (r *Ring[T]) Len() int { return int(r.next - r.lowest) }

// At returns the value of a record that the ring has.
func (r *Ring[T]) At(number uint64) *T { return &r.slots[number&uint64(len(r.slots)-1)] }

// Add adds the value of the next record and returns the record's number.
func (r *Ring[T]) Add(value T) uint64 {
	if r.Len() == len(r.slots) {
		r.grow()
	}
	number := r.next
	r.next++
	*r.At(number) = value
	return number
}

func (r *Ring[T]) grow() {
	old := *r
	r.slots = make([]T, max(256, 2*len(old.slots)))
	for n := old.lowest; n < old.next; n++ {
		*r.At(n) = *old.At(n)
	}
}

// RemoveBelow removes the records below a number, which is the lowest unsettled one now. It reports whether there were
// any.
func (r *Ring[T]) RemoveBelow(number uint64) bool {
	removed := number > r.lowest
	r.lowest = number
	return removed
}
