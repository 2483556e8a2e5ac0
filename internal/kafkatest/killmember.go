package kafkatest

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// killMember cuts off a process and removes its member from the group, as the broker does when the session of a killed
// member ends. Waiting for that takes sessionTimeout, and a shorter timeout would remove live members on a slow
// machine. If the broker does not answer, the session timeout removes the member.
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
			return false, err // the next try checks that it has left
		}
		why := groups[group].Err
		return err == nil && (why == nil || errors.Is(why, kerr.GroupIDNotFound)), err
	})
}
