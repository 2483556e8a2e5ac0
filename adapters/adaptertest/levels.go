package adaptertest

import (
	"time"

	"github.com/redeliver/redeliver"
)

// levels: a deploy with another policy strands nothing.
func levels() []test {
	return []test{
		{name: "WhatWaitsUnderAnOlderPolicyComesBack", needs: "KeepsAttempts", body: olderPolicy},
		{name: "WhatWaitsOnALongerLevelComesBackToAShorterLadder", needs: "KeepsAttempts", body: shorterLadder},
		{name: "WhatWaitsUnderAnOlderPolicyFinishesByItsRule", needs: "KeepsAttempts", body: finishesByItsRule},
		{name: "APolicyThatSupersedesDecidesAboutWhatWaits", body: supersedes},
		{name: "AnotherPolicyThatWritesNowIsToldOf", body: rivalIsToldOf},
	}
}

func olderPolicy(b *bench) {
	redeploy(b, 700*time.Millisecond,
		[]time.Duration{300 * time.Millisecond, 600 * time.Millisecond},
		[]time.Duration{100 * time.Millisecond})
}

func shorterLadder(b *bench) {
	redeploy(b, 1200*time.Millisecond,
		[]time.Duration{time.Second},
		[]time.Duration{200 * time.Millisecond, time.Hour})
}

// redeploy closes a service whose messages wait, and opens one with other levels.
func redeploy(b *bench, delay time.Duration, was, is []time.Duration) {
	const n = 50
	msgs, ids := many(n)
	old := b.start(Config{Policy: redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(delay), Levels: was}}, declineFirst(1))
	b.put(msgs...)
	awaitEvents[redeliver.RetryScheduled](b, n)
	old.close()
	b.start(Config{Policy: redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(time.Hour), Levels: is}}, succeed)
	b.awaitEnds(ids...)
	b.wantEach(2, ids...)
	b.noneEarlier(always(delay), ids...)
	b.dueAsDecided(ids...)
	b.wantBelieved()
	b.dead(0)
}
