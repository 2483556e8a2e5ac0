package settle

import (
	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
)

// head has what commits say about the message that has failed and keeps its place. Each failure makes a new version. The
// message begins again when a commit has it, so a kill forgets no attempt that was decided about, except immediate
// retries, which begin at once. If the broker refuses such metadata for good, the attempts are counted only here.
//
// A commit never says less than the one before: what an earlier owner noted is committed again until its record is read
// and settled, or turns out to be another one.
type head struct {
	note    commitmeta.Head // the zero Head for none
	unread  bool            // an earlier owner has noted it, and the record was not read yet
	version uint64
	done    uint64 // the version that commits have, or that cannot be committed
	waits   bool   // the message waits for the commit of its version
}

func identify(rec *sarama.ConsumerMessage) commitmeta.Record {
	return commitmeta.Identify(rec.Offset, rec.Timestamp, rec.Key, len(rec.Value))
}

// read compares a record that was read with the one of the note.
func (h *head) read(rec *sarama.ConsumerMessage, wasSettled bool) {
	if !h.unread || rec.Offset < h.note.Record.Offset {
		return
	}
	h.unread = false
	if wasSettled || h.note.Record != identify(rec) { // the log has another record there, or has lost it
		h.note = commitmeta.Head{}
	}
}

// settle forgets the note of a record that is settled.
func (h *head) settle(offset int64) {
	if h.note.Record.Offset == offset {
		h.note, h.done = commitmeta.Head{}, h.version
	}
}

// delays reports whether the record at an offset must wait for the commit of its note.
func (h *head) delays(offset int64) bool {
	if h.version == h.done || h.note.Record.Offset != offset {
		return false
	}
	h.waits = true
	return true
}

// HeadOf returns what an earlier owner of the partition noted about a message, or the zero Head.
func (p *Partition) HeadOf(m *message) commitmeta.Head {
	if p.head.note.Record.Offset == m.Record.Offset {
		return p.head.note
	}
	return commitmeta.Head{}
}

// noteLocked makes the next commit, at once, have the state of a message that keeps its place.
func (p *Partition) noteLocked(m *message, st *redeliver.State) {
	note := commitmeta.HeadOf(identify(m.Record), st)
	if note == p.head.note {
		return
	}
	p.head.note, p.head.unread = note, false
	p.head.version++
	p.dirty = true
	p.committer.commitNow()
}

// noteDoneLocked lets the message of the note begin after a commit. has reports whether the commit has the note; if not, err
// may say why no commit ever will.
func (p *Partition) noteDoneLocked(snap *snapshot, has bool, err error) {
	p.head.done = max(p.head.done, snap.head)
	refused := snap.head == p.head.version && p.head.note.Known() && !has
	if !refused && (!p.head.waits || p.head.done < p.head.version) {
		return
	}
	p.head.waits = false
	p.lane.Post(func() { // then the message asks again
		if refused {
			p.cfg.ReportInMemory(err)
		}
	})
}
