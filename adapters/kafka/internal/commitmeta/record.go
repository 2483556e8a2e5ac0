package commitmeta

import (
	"encoding/base64"
	"encoding/binary"
	"time"
)

// Record identifies one record of a partition's log. Its offset alone does not: a log that loses its end gets other
// records at the same offsets.
type Record struct {
	Offset int64
	Sum    uint32 // of what differs between records; 0 for no record
}

// Identify identifies a record by its time, its key and the size of its value.
func Identify(offset int64, at time.Time, key []byte, valueSize int) Record {
	sum := uint32(2166136261) // FNV-1a, without an allocation
	for _, n := range [...]uint64{uint64(at.UnixMilli()), uint64(valueSize)} {
		for ; n > 0; n >>= 8 {
			sum = (sum ^ uint32(n&0xff)) * 16777619
		}
	}
	for _, b := range key {
		sum = (sum ^ uint32(b)) * 16777619
	}
	return Record{offset, max(1, sum)}
}

// Known reports whether there is a record.
func (r Record) Known() bool { return r.Sum != 0 }

// text returns the field of a record in the metadata of a commit of base.
func (r Record) text(base int64) string {
	if !r.Known() || r.Offset < base {
		return ""
	}
	data := binary.BigEndian.AppendUint32(nil, r.Sum)
	return " last=" + base64.RawURLEncoding.EncodeToString(binary.AppendUvarint(data, uint64(r.Offset-base)))
}

// parseRecord parses the value of such a field. It returns the zero Record if it cannot be read.
func parseRecord(value string, base int64) Record {
	data, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || len(data) < 5 {
		return Record{}
	}
	above, n := binary.Uvarint(data[4:])
	if n != len(data)-4 || above > 1<<62 || base > 1<<61 {
		return Record{}
	}
	return Record{base + int64(above), binary.BigEndian.Uint32(data)}
}
