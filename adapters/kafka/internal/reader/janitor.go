package reader

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
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
	stopCommands := r.commands.Start()
	var done sync.WaitGroup
	done.Go(func() {
		var reported bool
		ticker := time.NewTicker(r.SweepInterval)
		defer ticker.Stop()
		for n := rand.IntN(sweepsPerCheck); ; n++ { // members do not check at the same time
			select {
			case <-ticker.C:
			case <-r.keeper.RungsRequested():
				r.keeper.CreateRungs()
				continue
			case <-ctx.Done():
				return
			}
			r.keeper.CheckIfDue(n%sweepsPerCheck == 0)
			// Without the right to delete, records stay, but no message is lost. Only the first error in a row is
			// reported.
			err := r.Sweep()
			if err != nil && !reported {
				r.Sub.EmitChange(redeliver.ChangeRecordsNotDeleted, "grant Delete on the delay topics", err)
			}
			reported = err != nil
		}
	})
	return func() {
		stopCommands()
		cancel()
		done.Wait()
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
