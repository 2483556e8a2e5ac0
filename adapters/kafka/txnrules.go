package kafka

import (
	"fmt"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
)

// txnPrefix begins the transactional ids of a group.
func txnPrefix(group string) string { return group + ".redeliver." }

// txnID is the transactional id of one member's producer. It has the owner's name in
// notes, so that who finds a dead owner's note can end what that has left open.
func txnID(group, origin, owner string) string { return txnPrefix(group) + origin + "." + owner }

// txnOffsetCommit is Kafka's key of the request that commits offsets in a transaction.
// From version 3 on (Kafka 2.5) it has the member's id and generation.
const (
	txnOffsetCommit = 28
	txnFenced       = 3
)

// checkTransactions refuses what forwards in transactions cannot be kept with.
func (c Config) checkTransactions(ps *redeliver.Problems) {
	if !c.Transactions {
		return
	}
	if c.perKey() {
		ps.Add("Transactions", true, "must be false where an Order is PerKey")
	}
	if !c.Sarama.Version.IsAtLeast(sarama.V2_5_0_0) {
		ps.Add("Sarama.Version", c.Sarama.Version, "must be at least 2.5 with Transactions: before, a member that was thrown out could still commit")
	}
	rebalance := c.Sarama.Consumer.Group.Rebalance
	for _, s := range append(rebalance.GroupStrategies, rebalance.Strategy) {
		if s != nil && s.Name() == sarama.CooperativeStickyBalanceStrategyName {
			ps.Add("Sarama.Consumer.Group.Rebalance.GroupStrategies", s.Name(), "must not be there with Transactions: a generation must be one session, so give eager strategies alone")
		}
	}
}

// askForTransactions refuses a cluster that has no transactions which a group's
// generation fences.
func (c Config) askForTransactions(client sarama.Client) error {
	if !c.Transactions {
		return nil
	}
	broker := client.LeastLoadedBroker()
	if broker == nil {
		return fmt.Errorf("kafka: asking %v for transactions: %w", c.Brokers, sarama.ErrOutOfBrokers)
	}
	_ = broker.Open(client.Config()) // it may be open already
	res, err := broker.ApiVersions(&sarama.ApiVersionsRequest{})
	if err != nil {
		return fmt.Errorf("kafka: asking %s for transactions: %w", broker.Addr(), err)
	}
	for _, k := range res.ApiKeys {
		if k.ApiKey == txnOffsetCommit && k.MaxVersion >= txnFenced {
			return nil
		}
	}
	var ps redeliver.Problems
	ps.Add("Transactions", true, fmt.Sprintf("must be false: broker %s has no transactions that are fenced by a group's generation; Kafka has them from 2.5 on", broker.Addr()))
	return fmt.Errorf("kafka: %w", ps.Err())
}

// instanceID is the name of a static member; "" for none.
func (c Config) instanceID(topic string) string {
	if c.InstanceID == "" {
		return ""
	}
	return c.InstanceID + "-" + topic
}
