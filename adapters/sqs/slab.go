package sqs

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// slab is room for what a lane makes of the messages of one receive, so that a
// message that succeeds costs no allocation of ours. It lives as long as one of
// them: a message that stays long keeps those in memory that came with it. So large
// ones have none in common.
type slab []place

// place is one message in it.
type place struct {
	ticket ticket
	entry  entry
}

const slabBytes = 64 << 10

// begin makes room for what a receive has brought.
func (s *slab) begin(msgs []types.Message) {
	bytes := 0
	for i := range msgs {
		bytes += len(aws.ToString(msgs[i].Body))
	}
	*s = nil
	if bytes <= slabBytes {
		*s = make(slab, len(msgs))
	}
}

// place is the room of the next message.
func (s *slab) place() *place {
	if len(*s) == 0 {
		return new(place)
	}
	p := &(*s)[0]
	*s = (*s)[1:]
	return p
}
