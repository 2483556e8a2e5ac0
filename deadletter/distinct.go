package deadletter

import (
	"hash/maphash"
	"math"
	"slices"
)

// kept is how many hashes a count of distinct keys keeps.
const kept = 256

// distinct counts distinct keys in bounded memory: it keeps the smallest hashes
// there were. Up to their number it is exact; beyond, how small the largest of
// them is tells how many there must have been, 6 % off or so. The zero distinct
// is ready.
type distinct struct{ smallest []uint64 } // ascending

func (d *distinct) add(h uint64) {
	if len(d.smallest) == kept && h >= d.smallest[kept-1] {
		return
	}
	i, found := slices.BinarySearch(d.smallest, h)
	if found {
		return
	}
	if len(d.smallest) == kept {
		d.smallest = d.smallest[:kept-1]
	}
	d.smallest = slices.Insert(d.smallest, i, h)
}

func (d *distinct) count() float64 {
	if len(d.smallest) < kept {
		return float64(len(d.smallest))
	}
	return (kept - 1) / (float64(d.smallest[kept-1]) / math.MaxUint64)
}

var seed = maphash.MakeSeed()

// hash is of this process: counts are not kept.
func hash(key []byte) uint64 { return maphash.Bytes(seed, key) }
