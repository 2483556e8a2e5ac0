package deadletter

import "context"

// finish ends a claim or a session, even after ctx has ended, within maxFinish. A broker that does not answer blocks
// nobody, and its locks expire.
func finish(ctx context.Context, end func(context.Context) error) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxFinish)
	defer cancel()
	return end(last)
}
