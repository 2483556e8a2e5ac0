package reader

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// SweepInterval is the default of [Config.SweepInterval].
const SweepInterval = 30 * time.Second

// sweepsPerCheck is the number of sweeps after which a member checks our topics and their settings. It also does so
// after a rebalance or an error. A check lists all topics of the cluster.
const sweepsPerCheck = 10

// CheckInterval is the time between these checks.
const CheckInterval = SweepInterval * sweepsPerCheck

// startJanitor reads the commands, checks our topics at intervals, creates rungs, and deletes settled records, until
// stop is called.
func (r *Reader) startJanitor() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	stopCommands, detach := r.commands.Start(), r.operations.Attach(r.Sub)
	var done sync.WaitGroup
	done.Go(func() {
		var failure engine.Lasting
		ticker := time.NewTicker(r.SweepInterval)
		defer ticker.Stop()
		for n := rand.IntN(sweepsPerCheck); ; n++ { // members do not check at the same time
			select {
			case <-ticker.C:
			case <-r.keeper.RungsRequested():
				r.keeper.CreateRungs()
				continue
			case <-r.probeSoon:
				r.probe(ctx)
				continue
			case <-ctx.Done():
				return
			}
			fails := len(r.operations.Failing()) > 0
			r.keeper.CheckIfDue(n%sweepsPerCheck == 0 || fails)
			if fails || r.probesAlways {
				r.probe(ctx)
			}
			// Without the right to delete, records stay, but no message is lost.
			if err := r.Sweep(); err == nil {
				failure.Worked()
			} else if failure.Failed(err) {
				r.Sub.EmitChange(redeliver.ChangeRecordsNotDeleted, "they stay; no message is lost", err)
			}
		}
	})
	return func() {
		stopCommands()
		cancel()
		done.Wait()
		detach()
	}
}

// Sweep deletes settled records. If a topic was created again, it ends the session instead, because the lanes' offsets
// belong to a topic that is gone. The next session reads the new topic from its beginning.
func (r *Reader) Sweep() error {
	topics := r.topicIDs.topics()
	if len(topics) == 0 {
		return nil
	}
	ids, err := r.admin().TopicIDs(topics...)
	if err != nil {
		return err
	}
	if len(r.topicIDs.differFrom(ids)) > 0 {
		r.keeper.Rejoin()
		return nil
	}
	return r.sweeper.Sweep(ids)
}
