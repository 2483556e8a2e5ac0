package kafka

// lowest is a heap of entries by number, the lowest first. Many may stand in it
// that are out of reach, behind one that takes long: the first says so for all.
type lowest []*entry

func (h *lowest) push(e *entry) {
	*h = append(*h, e)
	q := *h
	for i := len(q) - 1; i > 0; {
		parent := (i - 1) / 2
		if q[parent].number <= q[i].number {
			return
		}
		q[i], q[parent] = q[parent], q[i]
		i = parent
	}
}

// pop takes out the first; there must be one.
func (h *lowest) pop() *entry {
	q := *h
	first, n := q[0], len(q)-1
	q[0], q[n] = q[n], nil
	q = q[:n]
	*h = q
	for i := 0; ; {
		child := 2*i + 1
		if child >= n {
			return first
		}
		if child+1 < n && q[child+1].number < q[child].number {
			child++
		}
		if q[i].number <= q[child].number {
			return first
		}
		q[i], q[child] = q[child], q[i]
		i = child
	}
}
