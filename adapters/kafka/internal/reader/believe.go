package reader

import (
	"context"
	"fmt"

	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/settle"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
)

// believe returns what is known of a partition that a lane reads from an offset: found without what it says of another
// log. Mirroring tools copy metadata to offsets with other records, topics are created again, and a log may lose its end
// and get other records there. To skip those would lose them. So settled records are believed only if the log still has
// the record that their owner had read last.
//
// Metadata of earlier versions do not name that record. Then settled records run again once. Suspects stay suspects,
// which costs little if they are other records.
func (s *Session) believe(ctx context.Context, topic string, partition int32, found claimMeta, from int64) (claimMeta, error) {
	meta := found.meta
	if !meta.Known() || found.offset < 0 || found.offset > from || s.topicIDs.Differs(topic, meta.Topic) {
		found.meta = commitmeta.Meta{} // the log was truncated, or the offset was moved: the metadata does not apply
		return found, nil
	}
	log := topiclog.Reader{Client: s.reader.admin().Client, Topic: topic}
	doubt := ""
	switch {
	case !meta.IsOf(found.offset):
		found.meta, doubt = meta.WithoutOffsets(), "the list of settled offsets was written for another offset, and copied by a tool"
	case meta.Last.Known():
		has, err := log.Has(ctx, partition, meta.Last)
		if err != nil {
			return found, fmt.Errorf("kafka: checking offset %d of %s/%d: %w", meta.Last.Offset, topic, partition, err)
		}
		if !has {
			found.meta, doubt = meta.WithoutOffsets(), fmt.Sprintf("the log no longer has the record at offset %d that was read last: it has lost its end, or was compacted", meta.Last.Offset)
		}
	case len(meta.Settled)+len(meta.Window)+len(meta.Suspects) > 0:
		_, end, err := log.Bounds(ctx, partition)
		if err != nil {
			return found, err
		}
		found.meta, doubt = meta.Below(end), "an earlier version of redeliver did not write which log they are of"
	}
	found.meta.Settled = found.meta.Settled.From(from)
	if n := meta.Settled.From(from).Count(); n > 0 && doubt != "" {
		found.meta.Settled = nil
		s.reader.Sub.EmitChange(settle.ChangeRunAgain, fmt.Sprintf("%s/%d: up to %d messages, because %s", topic, partition, n, doubt), nil)
	}
	return found, nil
}
