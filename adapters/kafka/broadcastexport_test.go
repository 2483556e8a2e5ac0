package kafka

import "time"

// LookEvery makes b look for new partitions so often.
func LookEvery(b *Broadcast, d time.Duration) { b.lookEvery = d }
