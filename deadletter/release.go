package deadletter

import "context"

// finish calls end, which ends a claim or a session, even after ctx has ended. It waits at most maxFinish. If the
// broker does not answer, the locks expire later.
func finish(ctx context.Context, end func(context.Context) error) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxFinish)
	defer cancel()
	return end(last)
}
