package deadletter

import "context"

// release gives a DLQ up, also when ctx has ended, within maxFinish: a broker that does not answer blocks
// nobody, and the claim expires.
func release(ctx context.Context, claim Claim) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxFinish)
	defer cancel()
	return claim.Release(last)
}
