package deadletter

import (
	"hash/maphash"
	"math"
	"slices"
)

// kept is the number of hashes that a count of distinct keys keeps.
const kept = 256

// distinct counts distinct keys in bounded memory. It keeps the smallest hashes. The count is exact up to kept keys;
// beyond that it is estimated from the largest kept hash, with an error of about 6 %. The zero value is ready to use.
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

// hash returns a hash that is valid in this process only.
func hash(key []byte) uint64 { return maphash.Bytes(seed, key) }
