// Package kafkaworld runs worlds with adapters/kafka on kfake, in virtual time: see package worlds.
package kafkaworld

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"

	"github.com/redeliver/redeliver/integration/worlds/live"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// Vocabulary is what this driver can express.
var Vocabulary = plan.Vocabulary{
	Broker:   "kafka",
	Ways:     []plan.Way{plan.Consume, plan.Consume, plan.ConsumeBatch, plan.Router, plan.Wrap},
	Orders:   []string{plan.OrderFirstAttempts, plan.OrderFirstAttempts, plan.OrderNone, plan.OrderThroughRetries, plan.OrderBlocking},
	Balances: []string{"range", "range", "sticky", "cooperative"},
	Words: map[string]int{
		plan.Kill: 3, plan.Restart: 2, plan.Scale: 2, plan.Cut: 2, plan.Stall: 2, plan.Refuse: 4, plan.Late: 2, plan.LostAnswers: 2,
		plan.Deploy: 2, plan.PauseGroup: 1, plan.Elect: 1, plan.MoveGroups: 1, plan.Grow: 1, plan.Deny: 2, plan.SmallCommits: 1,
		plan.Dependency: 1, plan.DeleteOrigin: 1, plan.DeleteLevel: 1, plan.DeleteRetry: 1, plan.DeleteDLQ: 1, plan.ExpireOrigin: 1,
		plan.ExpireLevel: 1, plan.ExpireOffsets: 1, plan.ResetOffsets: 1, plan.Replay: 2,
		plan.Purge: 1,
	},
	Keys: []int16{
		int16(kmsg.Produce), int16(kmsg.Produce), int16(kmsg.Fetch), int16(kmsg.ListOffsets), int16(kmsg.Metadata), int16(kmsg.OffsetCommit),
		int16(kmsg.OffsetCommit), int16(kmsg.OffsetFetch), int16(kmsg.FindCoordinator), int16(kmsg.JoinGroup), int16(kmsg.Heartbeat),
		int16(kmsg.SyncGroup), int16(kmsg.CreateTopics), int16(kmsg.DescribeConfigs), int16(kmsg.InitProducerID), int16(kmsg.DeleteRecords),
	},
	Errors: []string{
		"NOT_LEADER_FOR_PARTITION", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
		"REBALANCE_IN_PROGRESS", "UNKNOWN_SERVER_ERROR", "LEADER_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "KAFKA_STORAGE_ERROR",
		"UNKNOWN_TOPIC_OR_PARTITION", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "BROKER_NOT_AVAILABLE",
	},
	Denials:  []string{"TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"},
	MaxNodes: 3, Static: true, Skips: true, Deadlines: true, Delays: true,
}

// Driver implements live.Driver.
type Driver struct {
	world   plan.World
	start   time.Time
	say     func(string)
	network network
	cluster *kfake.Cluster
	addrs   []string
	client  *kgo.Client // without redeliver
	writer  *kgo.Client
	admin   *kadm.Client

	work      sync.Mutex // of administrators and operators, one at a time
	mu        sync.Mutex
	processes map[string]*machine          // by name
	read      map[string]int64             // the next offset of a partition of a DLQ
	unstable  map[string]time.Time         // since when a group is neither stable nor empty
	signs     map[string]sign              // by member
	deleted   []live.Copy                  // see Deleted
	denials   []live.Denial                // see Denials
	letters   map[string][]live.DeadLetter // of deleted DLQs, which DeadLetters has not returned, by group
	closed    chan struct{}
}

var _ live.Driver = (*Driver)(nil)

// Start starts the brokers of a world. say adds a line for people to the history.
func Start(w plan.World, say func(string)) (*Driver, error) {
	d := &Driver{
		say: say, start: time.Now(),
		world: w, processes: make(map[string]*machine), read: make(map[string]int64), unstable: make(map[string]time.Time),
		signs: make(map[string]sign), letters: make(map[string][]live.DeadLetter), closed: make(chan struct{}),
	}
	ports := make([]int, w.Nodes)
	for i := range ports {
		ports[i] = 9092 + i
	}
	var err error
	d.cluster, err = kfake.NewCluster(kfake.NumBrokers(w.Nodes), kfake.Ports(ports...), kfake.ListenFn(d.network.Listen))
	if err != nil {
		return nil, err
	}
	d.addrs = d.cluster.ListenAddrs()
	for _, t := range w.Topics {
		if err := d.cluster.CreateTopic(t.Name, int32(t.Partitions), nil); err != nil {
			return nil, err
		}
	}
	if d.client, err = d.connect(); err != nil {
		return nil, err
	}
	if d.writer, err = d.connect(); err != nil {
		return nil, err
	}
	d.admin = kadm.NewClient(d.client)
	d.watchMembers()
	if trace {
		sarama.Logger, traceFrame = log.New(sayWriter{say}, "", 0), say
	}
	return d, nil
}

func (d *Driver) connect(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(d.addrs...), kgo.Dialer(d.network.DialContext), kgo.RecordPartitioner(byKey()), kgo.MetadataMinAge(time.Second), kgo.ProducerLinger(0),
		kgo.WithDecompressor(decompressor{kgo.DefaultDecompressor()}),
		// Each write is tried once, because Write's caller counts the tries. A producer id that is refused would be asked for without a pause.
		kgo.DisableIdempotentWrite(), kgo.RecordRetries(0),
	}, opts...)...)
}

// decompressor closes its zstd decoders. kgo's default leaves that to a finalizer, which runs outside the bubble.
type decompressor struct{ kgo.Decompressor }

func (d decompressor) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if codec != kgo.CodecZstd {
		return d.Decompressor.Decompress(src, codec)
	}
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.DecodeAll(src, nil)
}

// trace adds what sarama logs, and the requests to groups, to the history.
var trace = os.Getenv("WORLDS_LOG") != ""

func member(r kmsg.Request) string {
	switch r := r.(type) {
	case *kmsg.JoinGroupRequest:
		return r.MemberID
	case *kmsg.HeartbeatRequest:
		return fmt.Sprint(r.MemberID, " ", r.Generation)
	case *kmsg.SyncGroupRequest:
		return fmt.Sprint(r.MemberID, " ", r.Generation)
	case *kmsg.OffsetCommitRequest:
		return fmt.Sprint(r.MemberID, " ", r.Generation)
	}
	return ""
}

// sayWriter adds what sarama logs to the history.
type sayWriter struct{ say func(string) }

func (w sayWriter) Write(p []byte) (int, error) {
	w.say(strings.TrimSpace(string(p)))
	return len(p), nil
}

// Close ends the brokers.
func (d *Driver) Close() {
	close(d.closed)
	d.client.Close()
	d.writer.Close()
	d.cluster.Close()
}

func byKey() kgo.Partitioner {
	return kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
		return func(r *kgo.Record, n int) int {
			h := fnv.New32a()
			_, _ = h.Write(r.Key)
			return int(h.Sum32() % uint32(n))
		}
	})
}

// Write implements live.Driver.
func (d *Driver) Write(m plan.Message, body []byte) (int32, int64, error) {
	if m.Delay > 0 {
		return 0, 0, d.publish(m, body)
	}
	headers := []kgo.RecordHeader{{Key: live.UserHeader, Value: []byte(m.ID)}}
	if m.Expires > 0 {
		at := d.start.Add(m.Expires).UTC().Format(time.RFC3339Nano)
		headers = append(headers, kgo.RecordHeader{Key: redeliver.HeaderExpires, Value: []byte(at)})
	}
	r := d.writer.ProduceSync(context.Background(), &kgo.Record{Topic: m.Topic, Key: []byte(m.Key), Value: body, Headers: headers})[0]
	if r.Err != nil { // some errors are forever, such as a refused producer id
		d.writer.Close()
		var err error
		if d.writer, err = d.connect(); err != nil {
			return 0, 0, err
		}
	}
	return r.Record.Partition, r.Record.Offset, r.Err
}

// publish publishes a message for later, with redeliver's Publisher. The levels are those of the first service that reads the
// topic.
func (d *Driver) publish(m plan.Message, body []byte) error {
	i := slices.IndexFunc(d.world.Services, func(s plan.Service) bool { return slices.Contains(s.Topics, m.Topic) })
	if i < 0 {
		return nil
	}
	ctx := context.Background()
	p := live.Process{Service: d.world.Services[i], Version: d.world.Services[i].Versions[0]}
	s := service{Process: &p, driver: d, machine: newMachine(&d.network, "publisher")}
	c := s.config()
	c.Brokers, c.Sarama, c.InstanceID, c.Sink = d.addrs, saramaConfig("publisher", s.machine), "", redeliver.SinkFunc(func(redeliver.Event) {})
	client, err := kafka.Open(ctx, c)
	if err != nil {
		return err
	}
	msg := message.NewMessage(m.ID, body)
	msg.Metadata.Set(live.UserHeader, m.ID)
	kafka.SetKey(msg, []byte(m.Key))
	delay.Message(msg, delay.For(m.Delay))
	return errors.Join(client.Publisher().Publish(m.Topic, msg), client.Close(ctx))
}

// DeadLetters implements live.Driver.
func (d *Driver) DeadLetters(s plan.Service) (all []live.DeadLetter, _ error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d.mu.Lock()
	all = d.letters[s.Group]
	delete(d.letters, s.Group)
	d.mu.Unlock()
	for _, topic := range s.Topics {
		letters, err := d.readDLQ(ctx, topic+"."+s.Group+".dlq")
		all = append(all, letters...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// readDLQ returns what a DLQ has got since the last call.
func (d *Driver) readDLQ(ctx context.Context, dlq string) (all []live.DeadLetter, _ error) {
	for _, p := range d.cluster.PartitionInfos(dlq) {
		place := fmt.Sprintf("%s/%d", dlq, p.Partition)
		from := max(d.read[place], p.LogStartOffset)
		if from >= p.HighWatermark {
			continue
		}
		letters, err := d.readPartition(ctx, dlq, p.Partition, from, p.HighWatermark)
		if err != nil {
			return all, err
		}
		d.read[place] = p.HighWatermark
		all = append(all, letters...)
	}
	return all, nil
}

func (d *Driver) readPartition(ctx context.Context, topic string, partition int32, from, to int64) (all []live.DeadLetter, _ error) {
	c, err := d.connect(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(from)}}))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for from < to {
		if p := d.cluster.PartitionInfo(topic, partition); p == nil || p.LogStartOffset >= to {
			break // redeliver has deleted the settled records meanwhile
		}
		poll, cancel := context.WithTimeout(ctx, 5*time.Second)
		fetches := c.PollFetches(poll)
		cancel()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s/%d at %d: %w", topic, partition, from, ctx.Err())
		}
		if fetches.Err() != nil { // kgo fetches again without a pause
			time.Sleep(time.Second)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset >= to { // the next call reads it
				return
			}
			from = r.Offset + 1
			l := live.DeadLetter{Body: r.Value, Key: string(r.Key), Place: fmt.Sprintf("%s/%d/%d", topic, partition, r.Offset)}
			for _, h := range r.Headers {
				switch h.Key {
				case live.UserHeader:
					l.Header = string(h.Value)
				case redeliver.HeaderID:
					l.Name = string(h.Value)
				case redeliver.HeaderReason:
					l.Reason = string(h.Value)
				case redeliver.HeaderAttempt:
					_, _ = fmt.Sscan(string(h.Value), &l.Attempt)
				}
			}
			all = append(all, l)
		})
	}
	return all, nil
}

// errorNamed returns Kafka's error with a name.
func errorNamed(name string) *kerr.Error {
	for code := int16(-1); code < 200; code++ {
		var e *kerr.Error
		if errors.As(kerr.ErrorForCode(code), &e) && e.Message == name {
			return e
		}
	}
	return kerr.UnknownServerError
}

// Do implements live.Driver.
func (d *Driver) Do(o plan.Word, target string) (heal func(), err error) {
	switch o.What {
	case plan.Cut:
		d.machine(target).cut(false)
	case plan.Stall:
		d.machine(target).stall(o.For)
	case plan.LostAnswers:
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, m := range d.processes {
			m.loseAnswers(o.Keys[0], o.Count)
		}
	case plan.Late:
		left, over := o.Count, false // only kfake's goroutine uses left
		var mu sync.Mutex
		isOver := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return over
		}
		d.cluster.ControlKey(o.Keys[0], func(kmsg.Request) (kmsg.Response, error, bool) {
			left--
			if left < 0 || isOver() {
				d.cluster.DropControl()
				return nil, nil, false
			}
			d.cluster.KeepControl()
			d.cluster.SleepControl(func() { time.Sleep(o.For) })
			return nil, nil, false
		})
		return func() {
			mu.Lock()
			defer mu.Unlock()
			over = true
		}, nil
	case plan.Refuse, plan.Deny:
		if o.Keys[0] == int16(kmsg.Fetch) {
			o.Top = false // Kafka answers so only about fetch sessions, which sarama does not use
		}
		if (o.Keys[0] == int16(kmsg.JoinGroup) || o.Keys[0] == int16(kmsg.SyncGroup)) && o.Count < 0 {
			o.Count = 5 // sarama calls itself forever if a group never knows the member that it has just named
		}
		f := kfake.Fault{Keys: []kmsg.Key{kmsg.Key(o.Keys[0])}, Err: errorNamed(o.Error), Count: o.Count, TopLevel: o.Top}
		handle := d.cluster.Fault(f)
		if o.What == plan.Deny && o.Count < 0 {
			return d.countDenials(o, handle), nil
		}
		return handle.Remove, nil
	case plan.SmallCommits:
		return d.cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.OffsetMetadataTooLarge, Count: -1, When: func(r kmsg.Request) bool {
				for _, t := range r.(*kmsg.OffsetCommitRequest).Topics {
					for _, p := range t.Partitions {
						if p.Metadata != nil && len(*p.Metadata) > o.Count {
							return true
						}
					}
				}
				return false
			},
		}).Remove, nil
	case plan.Elect:
		d.cluster.ShufflePartitionLeaders()
	case plan.MoveGroups:
		d.cluster.RehashCoordinators()
	case plan.Grow:
		d.grow(o.Topic, o.Count)
	case plan.PauseGroup:
		return d.pause(o, target)
	case plan.DeleteOrigin, plan.DeleteLevel, plan.DeleteRetry, plan.DeleteDLQ, plan.ExpireOrigin, plan.ExpireLevel:
		return d.remove(o, target)
	case plan.Replay, plan.Purge:
		return nil, d.workOnDLQ(o, target)
	case plan.ExpireOffsets:
		return nil, d.expireOffsets(target)
	case plan.ResetOffsets:
		return nil, d.resetOffsets(o, target)
	default:
		return nil, fmt.Errorf("kafkaworld does not know the word %q", o.What)
	}
	return nil, err
}

// grow gives a topic more partitions. With OrderThroughRetries redeliver refuses to start until its own topics have as many, so the operator
// raises these, too, and tries again until all have them.
func (d *Driver) grow(topic string, by int) {
	n := len(d.cluster.PartitionInfos(topic))
	if n == 0 {
		return // it is deleted
	}
	for n += by; ; time.Sleep(time.Second) {
		topics := []string{topic}
		listed, err := d.admin.ListTopics(context.Background())
		if err != nil {
			continue
		}
		for _, s := range d.world.Services {
			if slices.ContainsFunc(s.Versions, func(v plan.Version) bool { return v.Order == plan.OrderThroughRetries }) {
				for _, name := range listed.Names() {
					if strings.HasPrefix(name, topic+"."+s.Group+".retry") {
						topics = append(topics, name)
					}
				}
			}
		}
		_, err = d.admin.UpdatePartitions(context.Background(), n, topics...)
		if err == nil && !slices.ContainsFunc(topics, func(t string) bool { return d.cluster.TopicInfo(t) != nil && len(d.cluster.PartitionInfos(t)) < n }) {
			return
		}
	}
}

func (d *Driver) machine(process string) *machine {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.processes[process]
}

// pause pauses a group as an operator does.
func (d *Driver) pause(o plan.Word, group string) (resume func(), err error) {
	c, err := d.operator(group)
	if err != nil {
		return nil, err
	}
	return live.Pause(c, o.Topic)
}

// Stuck implements live.Driver. When members die while they join, kfake's group may never answer JoinGroup again.
func (d *Driver) Stuck(s plan.Service) string {
	g := d.cluster.GroupInfo(s.Group)
	if g == nil {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	since, ok := d.unstable[s.Group]
	if g.State == "Stable" || g.State == "Empty" {
		delete(d.unstable, s.Group)
		return ""
	}
	if !ok {
		d.unstable[s.Group] = time.Now()
	} else if time.Since(since) > 15*time.Minute {
		return "kfake's group stands still in the state " + g.State
	}
	return ""
}

// sign is the last request that kfake got from a member of a group.
type sign struct {
	at    time.Time
	joins bool
}

// watchMembers notes the requests of all members.
func (d *Driver) watchMembers() {
	note := func(member string, joins bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.signs[member] = sign{time.Now(), joins}
	}
	noteCommit := func(member string) { // a member may commit while it joins
		d.mu.Lock()
		defer d.mu.Unlock()
		d.signs[member] = sign{time.Now(), d.signs[member].joins}
	}
	for key, read := range map[kmsg.Key]func(kmsg.Request){
		kmsg.JoinGroup:    func(r kmsg.Request) { note(r.(*kmsg.JoinGroupRequest).MemberID, true) },
		kmsg.SyncGroup:    func(r kmsg.Request) { note(r.(*kmsg.SyncGroupRequest).MemberID, false) },
		kmsg.Heartbeat:    func(r kmsg.Request) { note(r.(*kmsg.HeartbeatRequest).MemberID, false) },
		kmsg.OffsetCommit: func(r kmsg.Request) { noteCommit(r.(*kmsg.OffsetCommitRequest).MemberID) },
	} {
		d.cluster.ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
			d.cluster.KeepControl()
			read(r)
			if trace {
				d.say(fmt.Sprintf("%s %s", key.Name(), member(r)))
			}
			return nil, nil, false
		})
	}
	go func() {
		for {
			select {
			case <-time.After(2 * time.Second):
			case <-d.closed:
				return
			}
			for _, s := range d.world.Services {
				d.removeDeadMembers(s.Group)
			}
		}
	}()
}

// removeDeadMembers removes members that have sent nothing for longer than their session, as Kafka does. kfake may keep a member
// that died while it joined, and then two live members time out in turn.
func (d *Driver) removeDeadMembers(group string) {
	g := d.cluster.GroupInfo(group)
	if g == nil {
		return
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = group
	d.mu.Lock()
	for _, m := range g.Members {
		seen, ok := d.signs[m.MemberID]
		if !ok {
			d.signs[m.MemberID] = sign{time.Now(), true}
			continue
		}
		session := sessionTimeout + 2*time.Second
		if seen.joins {
			session = 65 * time.Second // it waits for the others, at most for the rebalance timeout
		}
		if time.Since(seen.at) > session {
			one := kmsg.NewLeaveGroupRequestMember()
			one.MemberID, one.InstanceID = m.MemberID, m.InstanceID
			leave.Members = append(leave.Members, one)
		}
	}
	d.mu.Unlock()
	if leave.Members != nil {
		for _, m := range leave.Members {
			d.say(fmt.Sprintf("kfake keeps the dead member %s of %s: it is removed", m.MemberID, group))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, _ = leave.RequestWith(ctx, d.client)
	}
}
