package commitmeta

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// Head is the state of the message at the head of a partition: it has failed, keeps its place, and all others wait behind
// it (redeliver.OrderBlocking). It is comparable.
type Head struct {
	Record   Record // whose state it is; the state counts for no other record, see Meta.At
	Attempts int

	Due, FirstFailed, LastFailed, PostponedSince int64 // in Unix milliseconds; 0 for none

	FirstError, Error, ErrorType string // empty where the commit had no room for them
}

// maxHeadText bounds each text of a Head in bytes, before it is escaped.
const maxHeadText = limits.MaxErrorText

// HeadOf returns the Head of a record with a state.
func HeadOf(rec Record, st *redeliver.State) Head {
	due := st.Due
	if due.IsZero() { // an immediate retry
		due = st.LastFailed
	}
	return Head{
		Record: rec, Attempts: st.Attempts,
		Due: toMilli(due), FirstFailed: toMilli(st.FirstFailed), LastFailed: toMilli(st.LastFailed), PostponedSince: toMilli(st.PostponedSince),
		FirstError: limits.Cut(st.FirstError, maxHeadText), Error: limits.Cut(st.Error, maxHeadText), ErrorType: limits.Cut(st.ErrorType, maxHeadText),
	}
}

// Restore sets the fields of a state that the Head has.
func (h *Head) Restore(st *redeliver.State) {
	st.Attempts = h.Attempts
	st.Due, st.FirstFailed, st.LastFailed, st.PostponedSince = fromMilli(h.Due), fromMilli(h.FirstFailed), fromMilli(h.LastFailed), fromMilli(h.PostponedSince)
	st.FirstError, st.Error, st.ErrorType = h.FirstError, h.Error, h.ErrorType
}

// texts returns the fields of a Head that a commit may leave out, the most useful first.
func (h *Head) texts() [3]headText {
	return [...]headText{{" firsterror=", &h.FirstError}, {" error=", &h.Error}, {" errortype=", &h.ErrorType}}
}

type headText struct {
	name  string
	value *string
}

func toMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Known reports whether there is a head.
func (h *Head) Known() bool { return h.Record.Known() }

// text returns the field of the head in the metadata of a commit of mark: all but its texts. It usually has 30 bytes and
// at most 80, so that it fits where a broker accepts 100.
func (h *Head) text(mark int64) string {
	if !h.Known() || h.Record.Offset < mark {
		return ""
	}
	data := binary.BigEndian.AppendUint32(nil, h.Record.Sum)
	data = binary.AppendUvarint(data, uint64(h.Record.Offset-mark))
	data = binary.AppendUvarint(data, uint64(h.Attempts))
	data = binary.AppendVarint(data, h.Due)
	for _, at := range [...]int64{h.LastFailed, h.FirstFailed, h.PostponedSince} {
		if at != 0 {
			at = max(1, h.Due-at+1) // shorter than the time itself; 0 is for none
		}
		data = binary.AppendUvarint(data, uint64(at))
	}
	return " head=" + base64.RawURLEncoding.EncodeToString(data)
}

// parseHead parses the value of the field. It returns the zero Head if it cannot be read.
func parseHead(value string) (h Head) {
	data, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || len(data) < 4 {
		return Head{}
	}
	r := varints{data: data[4:]}
	h.Record = Record{int64(r.unsigned()), binary.BigEndian.Uint32(data)}
	h.Attempts = int(min(r.unsigned(), limits.MaxAttempts))
	h.Due = r.signed()
	for _, at := range [...]*int64{&h.LastFailed, &h.FirstFailed, &h.PostponedSince} {
		if before := int64(r.unsigned()); before > 0 {
			*at = h.Due - before + 1
		}
	}
	if r.failed || !h.Known() {
		return Head{}
	}
	return h
}

// varints reads numbers one after another. Numbers beyond 62 bits are refused.
type varints struct {
	data   []byte
	failed bool
}

func (r *varints) unsigned() uint64 {
	v, n := binary.Uvarint(r.data)
	return uint64(r.take(int64(v&(1<<62-1)), n, v>>62 == 0))
}

func (r *varints) signed() int64 {
	v, n := binary.Varint(r.data)
	return r.take(v, n, v>>61 == 0 || v>>61 == -1)
}

func (r *varints) take(v int64, n int, ok bool) int64 {
	if n <= 0 || !ok {
		r.failed = true
		return 0
	}
	r.data = r.data[n:]
	return v
}

// escape makes a text the value of a field: it has no space, and every byte that is not part of a visible character is
// written as %XX.
func escape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || r == ' ' || r == '%' || !unicode.IsPrint(r) {
			for i := range n {
				fmt.Fprintf(&b, "%%%02X", s[i])
			}
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// unescape undoes escape. It returns "" for a value that cannot be read.
func unescape(value string) string {
	s, err := url.PathUnescape(value)
	if err != nil {
		return ""
	}
	return limits.Cut(s, maxHeadText)
}
