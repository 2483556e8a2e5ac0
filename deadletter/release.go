package deadletter

import "context"

// finish gives up a claim or a session, also when ctx has ended, within maxFinish: a broker that does not answer
// blocks nobody, and what is held expires.
func finish(ctx context.Context, end func(context.Context) error) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxFinish)
	defer cancel()
	return end(last)
}
