package adaptertest

import (
	"time"

	"github.com/redeliver/redeliver"
)

// olderPolicies tests that waiting messages come back after a deploy with another policy.
func olderPolicies() []test {
	return []test{
		{name: "MessagesOfAnOlderPolicyComeBack", needs: "KeepsAttempts", body: olderPolicy},
		{name: "MessagesOnALongerLevelComeBackToAShorterLadder", needs: "KeepsAttempts", body: shorterLadder},
		{name: "TheRunningPolicyDecidesAboutWaitingMessages", needs: "KeepsAttempts", body: changesPolicy},
		{name: "AScheduleInAHeaderDecidesNothing", body: ignoresSchedule},
		{name: "AnotherRunningPolicyIsReported", body: reportsOtherPolicy},
	}
}

func olderPolicy(b *fixture) {
	redeploy(b, 700*time.Millisecond,
		[]time.Duration{300 * time.Millisecond, 600 * time.Millisecond},
		[]time.Duration{100 * time.Millisecond})
}

func shorterLadder(b *fixture) {
	redeploy(b, 1200*time.Millisecond,
		[]time.Duration{time.Second},
		[]time.Duration{200 * time.Millisecond, time.Hour})
}

// redeploy closes a service with waiting messages and opens one with other levels.
func redeploy(b *fixture, delay time.Duration, was, is []time.Duration) {
	const n = 50
	msgs, ids := numberedMessages(n)
	old := b.start(Config{Policy: redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(delay), Levels: was}}, failFirst(1))
	b.put(msgs...)
	awaitEvents[redeliver.RetryScheduled](b, n)
	old.close()
	b.start(Config{Policy: redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(time.Hour), Levels: is}}, succeed)
	b.awaitEnds(ids...)
	b.wantEach(2, ids...)
	b.checkNotEarly(constantDelay(delay), ids...)
	b.checkDueTimes(ids...)
	b.wantHeadersTrusted()
	b.dead(0)
}
