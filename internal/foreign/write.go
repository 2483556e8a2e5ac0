package foreign

import (
	"encoding/binary"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/limits"
)

// springNoTimestampType is the name of the unknown type in org.apache.kafka.common.record.TimestampType. Some clients do not
// report whether the producer or the broker set a record's time.
const springNoTimestampType = "NoTimestampType"

// AppendSpring appends the headers that Spring Kafka's DeadLetterPublishingRecoverer writes for a dead letter with that
// state.
func AppendSpring(to []deadletter.Header, st *redeliver.State) []deadletter.Header {
	to = append(to, text(springPrefix+"original-topic", st.Origin), text(springGroup, st.Group))
	if st.Source.Known {
		to = append(to,
			deadletter.Header{Name: springPrefix + "original-partition", Value: binary.BigEndian.AppendUint32(nil, uint32(st.Source.Partition))},
			deadletter.Header{Name: springPrefix + "original-offset", Value: binary.BigEndian.AppendUint64(nil, uint64(st.Source.Offset))})
	}
	if !st.Source.Timestamp.IsZero() {
		to = append(to,
			deadletter.Header{Name: springPrefix + "original-timestamp", Value: binary.BigEndian.AppendUint64(nil, uint64(st.Source.Timestamp.UnixMilli()))},
			text(springPrefix+"original-timestamp-type", springNoTimestampType))
	}
	return append(to,
		text(springPrefix+"exception-fqcn", st.ErrorType),
		text(springPrefix+"exception-message", st.Error),
		text(springPrefix+"exception-stacktrace", st.ErrorType+": "+st.Error))
}

func text(name, value string) deadletter.Header {
	return deadletter.Header{Name: name, Value: []byte(limits.Cut(value, limits.MaxErrorText))}
}
