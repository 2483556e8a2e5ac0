package kafkatest

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// bury cuts a process off and takes its member out of the group, as the broker does when
// the session of one that was killed is over. To wait for that takes seconds for each
// kill, and a session that is short enough to be waited for throws out who lives, on a
// machine that stands still for seconds. Where the broker does not answer the session
// does it at last.
func (k *harness) killMember(group string, dialer *killableDialer) {
	dialer.cut()
	_ = retryUntil(context.Background(), func(ctx context.Context) (gone bool, err error) {
		groups, err := k.admin.DescribeGroups(ctx, group)
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group = group
		for _, m := range groups[group].Members {
			if m.ClientID == dialer.name {
				one := kmsg.NewLeaveGroupRequestMember()
				one.MemberID = m.MemberID
				leave.Members = append(leave.Members, one)
			}
		}
		if leave.Members != nil {
			_, err = leave.RequestWith(ctx, k.client)
			return false, err // whether it has gone the next look says
		}
		why := groups[group].Err
		return err == nil && (why == nil || errors.Is(why, kerr.GroupIDNotFound)), err
	})
}
