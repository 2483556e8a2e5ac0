package deadletter

import (
	"hash/maphash"
	"math"
	"slices"
)

// maxHashes bounds the hashes that a count of distinct keys keeps.
const maxHashes = 256

// distinct counts distinct keys in bounded memory. It keeps the maxHashes smallest hashes. The count is exact for fewer keys. For
// more keys it is estimated from the largest hash that is kept, with an error of about 6 %. The zero value is ready to use.
type distinct struct{ smallest []uint64 } // ascending

func (d *distinct) add(h uint64) {
	if len(d.smallest) == maxHashes && h >= d.smallest[maxHashes-1] {
		return
	}
	i, found := slices.BinarySearch(d.smallest, h)
	if found {
		return
	}
	if len(d.smallest) == maxHashes {
		d.smallest = d.smallest[:maxHashes-1]
	}
	d.smallest = slices.Insert(d.smallest, i, h)
}

func (d *distinct) count() float64 {
	if len(d.smallest) < maxHashes {
		return float64(len(d.smallest))
	}
	return (maxHashes - 1) / (float64(d.smallest[maxHashes-1]) / math.MaxUint64)
}

var seed = maphash.MakeSeed()

// hash returns a hash that is valid in this process only.
func hash(key []byte) uint64 { return maphash.Bytes(seed, key) }
