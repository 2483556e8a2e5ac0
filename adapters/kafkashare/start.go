package kafkashare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wait"
)

// groupSettings are the settings of the share group that Open has read.
type groupSettings struct {
	lockDuration  time.Duration // how long the broker keeps a record for a member
	deliveryLimit int           // the number of deliveries after which it drops a record
}

const (
	stateTopic       = "__share_group_state"
	minDeliveryLimit = 10

	resetSetting     = "share.auto.offset.reset"
	limitSetting     = "share.delivery.count.limit"
	lockSetting      = "share.record.lock.duration.ms"
	isolationSetting = "share.isolation.level"
)

// ourGroupSettings are set if the group has no value of its own. The group begins at the oldest record, as groups of
// adapters/kafka do, and skips the records of aborted transactions. The broker's default limit of 5 is too low: deploys
// and lost connections use up deliveries.
var ourGroupSettings = map[string]string{resetSetting: "earliest", limitSetting: strconv.Itoa(minDeliveryLimit), isolationSetting: "read_committed"}

// checkCluster checks what the share group needs. All problems are in one error. The broker reports none of them to a
// member: polls stay empty.
func (c *client) checkCluster(ctx context.Context) error {
	var ps check.Problems
	if err := c.checkFeature(ctx, &ps); err != nil || ps != nil {
		return errors.Join(err, ps.Err()) // without share groups the other checks would fail
	}
	if err := c.checkStateTopic(ctx, &ps); err != nil {
		return err
	}
	if err := c.checkKinds(ctx, &ps); err != nil {
		return err
	}
	var err error
	if c.group, err = c.checkGroup(ctx, &ps); err != nil {
		return err
	}
	return ps.Err()
}

// checkFeature refuses a cluster without share groups, and one that can neither renew locks nor limit a fetch to a
// number of records. Brokers list the requests of share groups even if the feature is off.
func (c *client) checkFeature(ctx context.Context, ps *check.Problems) error {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, c.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("kafkashare: connecting to %v: %w", c.cfg.Brokers, err)
	}
	level, version := int16(0), int16(-1)
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "share.version" {
			level = f.MaxVersionLevel
		}
	}
	for _, k := range resp.ApiKeys {
		if k.ApiKey == kmsg.NewPtrShareFetchRequest().Key() {
			version = k.MaxVersion
		}
	}
	if level < 1 {
		ps.Add("share.version", level, "must be at least 1: share groups are off. They need Kafka 4.2; switch them on with kafka-features.sh upgrade --feature share.version=1")
	}
	if version < 2 {
		ps.Add("ShareFetch", version, "must be at least version 2, that of Kafka 4.2: without it a member cannot renew locks, nor limit how many messages it gets")
	}
	return nil
}

// checkStateTopic refuses a cluster on which the broker cannot create or write the topic with the state of share
// groups. Only the broker's log reports that.
func (c *client) checkStateTopic(ctx context.Context, ps *check.Problems) error {
	found, brokers, err := c.admin.topics(ctx, stateTopic)
	if err != nil {
		return err
	}
	if t, exists := found[stateTopic]; exists {
		s, err := c.admin.settings(ctx, kmsg.ConfigResourceTypeTopic, stateTopic)
		minISR, _ := strconv.Atoi(s.all["min.insync.replicas"])
		for _, p := range t.Partitions {
			if err == nil && len(p.ISR) < minISR {
				ps.Add(fmt.Sprintf("topic %s, in-sync replicas of partition %d", stateTopic, p.Partition), len(p.ISR), fmt.Sprintf("must be at least %d (min.insync.replicas): the group cannot read", minISR))
				break
			}
		}
		return nil // without the right to read the settings, the check passes
	}
	if len(brokers) == 0 {
		return errors.New("kafkashare: the cluster names no broker: check whether all brokers are up")
	}
	s, err := c.admin.settings(ctx, kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(brokers[0].NodeID)))
	if err != nil {
		return nil //nolint:nilerr // the user may not read the brokers' settings
	}
	const prefix = "share.coordinator.state.topic."
	replicas, _ := strconv.Atoi(s.all[prefix+"replication.factor"])
	minISR, _ := strconv.Atoi(s.all[prefix+"min.isr"])
	if replicas > len(brokers) {
		ps.Add(prefix+"replication.factor", replicas, fmt.Sprintf("must be at most %d, the number of brokers: the topic %s cannot be created, and nothing is read", len(brokers), stateTopic))
	}
	if minISR > replicas {
		ps.Add(prefix+"min.isr", minISR, fmt.Sprintf("must be at most %d, the replication factor: the topic %s cannot be written, and nothing is read", replicas, stateTopic))
	}
	return nil
}

// checkKinds refuses ids that are in use for the other kind of group.
func (c *client) checkKinds(ctx context.Context, ps *check.Problems) error {
	resp, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, c.client)
	if err != nil {
		return fmt.Errorf("kafkashare: listing the groups of %v: %w", c.cfg.Brokers, err)
	}
	for _, g := range resp.Groups {
		switch isShare := g.GroupType == "share"; {
		case g.Group == c.cfg.Group && !isShare:
			ps.Add("Group", g.Group, "is a consumer group, and cannot be a share group, too: choose another id, or delete it when nothing uses it")
		case g.Group == c.cfg.retryGroup() && isShare:
			ps.Add("Group", c.cfg.Group, "needs the id "+g.Group+" for the consumer group that reads retries, and that is a share group: choose another id")
		}
	}
	return nil
}

// readGroupSettings returns the share group's settings as they are after provision, and those that provision will set.
func (c *client) readGroupSettings(ctx context.Context) (all, unset map[string]string, err error) {
	s, err := c.admin.settings(ctx, kmsg.ConfigResourceTypeGroupConfig, c.cfg.Group)
	if err != nil {
		return nil, nil, err
	}
	unset = maps.Clone(ourGroupSettings)
	maps.DeleteFunc(unset, func(name, _ string) bool { return s.own[name] != "" })
	if !c.cfg.NoProvisioning {
		maps.Copy(s.all, unset)
	}
	return s.all, unset, nil
}

// configureGroup sets the settings that are unset, and waits until a broker reports them.
func (c *client) configureGroup(ctx context.Context) error {
	_, unset, err := c.readGroupSettings(ctx)
	if err != nil || len(unset) == 0 || c.cfg.NoProvisioning {
		return err
	}
	if err := c.admin.configureGroup(ctx, c.cfg.Group, unset); err != nil {
		err = explain(kafkaname.ToGroup("IncrementalAlterConfigs", "AlterConfigs", c.cfg.Group), fmt.Errorf("kafkashare: setting %v of group %s: %w", unset, c.cfg.Group, err))
		return fmt.Errorf("%w, or have them set, and set NoProvisioning", err)
	}
	for try := 0; ; try++ {
		if _, unset, err = c.readGroupSettings(ctx); err != nil || len(unset) == 0 {
			return err
		}
		if try == maxAskTries || wait.For(ctx, askPause) != nil {
			return fmt.Errorf("kafkashare: the brokers do not report %v of group %s after it was set", unset, c.cfg.Group)
		}
	}
}

// checkGroup refuses a share group without an offset reset, or with too low a delivery limit.
func (c *client) checkGroup(ctx context.Context, ps *check.Problems) (groupSettings, error) {
	all, unset, err := c.readGroupSettings(ctx)
	if err != nil {
		return groupSettings{}, err
	}
	hint := "set it with kafka-configs.sh --group " + c.cfg.Group
	if _, isUnset := unset[resetSetting]; isUnset && c.cfg.NoProvisioning {
		ps.Add(resetSetting, all[resetSetting], "must be set for the group, to earliest or latest: "+hint)
	}
	limit, _ := strconv.Atoi(all[limitSetting])
	if limit < minDeliveryLimit {
		ps.Add(limitSetting, limit, fmt.Sprintf("must be at least %d: at the limit the broker drops a message, and deploys and lost connections count; %s", minDeliveryLimit, hint))
	}
	ms, err := strconv.Atoi(all[lockSetting])
	if err != nil {
		return groupSettings{}, fmt.Errorf("kafkashare: the %s of group %s: %w", lockSetting, c.cfg.Group, err)
	}
	return groupSettings{lockDuration: time.Duration(ms) * time.Millisecond, deliveryLimit: limit}, nil
}
