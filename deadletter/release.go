package deadletter

import "context"

// finish calls end, which ends a claim or a session, even after ctx has ended. It waits for the broker at most for maxFinish; the
// locks expire later if it does not answer.
func finish(ctx context.Context, end func(context.Context) error) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxFinish)
	defer cancel()
	return end(last)
}
