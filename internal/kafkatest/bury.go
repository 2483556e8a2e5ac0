package kafkatest

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/adapters/adaptertest"
)

// bury cuts a process off and takes its member out of the group, as the broker does when
// the session of one that was killed is over. To wait for that takes seconds for each
// kill, and a session that is short enough to be waited for throws out who lives, on a
// machine that stands still for seconds. Where the broker does not answer the session
// does it at last.
func (k *harness) bury(group string, line *line) {
	line.cut()
	ctx, cancel := context.WithTimeout(context.Background(), adaptertest.Patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		groups, err := k.admin.DescribeGroups(ctx, group)
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group = group
		for _, m := range groups[group].Members {
			if m.ClientID == line.name {
				one := kmsg.NewLeaveGroupRequestMember()
				one.MemberID = m.MemberID
				leave.Members = append(leave.Members, one)
			}
		}
		switch why := groups[group].Err; {
		case leave.Members != nil:
			_, _ = leave.RequestWith(ctx, k.client) // whether it has gone the next look says
		case err == nil && (why == nil || errors.Is(why, kerr.GroupIDNotFound)):
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
