package main

import (
	"fmt"
	"math"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// load is what a cluster is to carry.
type load struct {
	Retries  float64       // a second, in all groups together
	Groups   int           // each reads one origin, with the default policy
	Waiting  float64       // messages, at one time
	Wait     time.Duration // how long each of them does
	Replicas int           // of every topic and quorum queue
	Share    float64       // of a core, or of what one process was measured to carry, that is planned with
}

// The assumptions that were not measured here. The page names each.
const (
	// The broker's processor time for a write with its read: 5 s for the 400,000 of `fail-all`, by the text below its table.
	brokerCPU = 5.0 / 400_000

	commitsASecond = 5           // of a member that has something to commit: every 200 ms
	sweep          = 30.0        // seconds until what is settled is given back
	segment        = 16 << 20    // bytes, of delay topics
	mapped         = 2           // files of a segment that the broker maps into memory: two indexes
	mapLimit       = 65_530      // vm.max_map_count of a Linux that nobody has changed
	parked         = 140.0       // bytes of memory of a message that waits in PerKey order; adapters/kafka, doc.go
	brokerReplicas = 4_000       // of partitions on one broker: the old rule of thumb
	brokerCores    = 8           //
	brokerWrites   = 100e6       // bytes a second to its disk
	brokerDisk     = 4e12        // bytes
	maxOwn         = 8           // partitions of a delay topic where RetryPartitions says nothing
	rabbitWaiting  = 1.25e9      // bytes of RabbitMQ's memory for a million that wait: 1.0 to 1.5 GB, 3.10, a prototype
	sqsDelay       = 15 * 60     // seconds, the longest DelaySeconds
	month          = 30 * 86_400 // seconds
)

// line is one line of a table: what, from what, and how much.
type line struct{ What, How, Result string }

// reckoning is what the page shows.
type reckoning struct {
	Load  load
	Rate  []line // 100,000 retries a second on Kafka
	Group []line // 1,000 groups
	Wait  []line // 10^9 messages that wait
	Rabbit,
	SQS []line
}

func reckon(l load, f figures) reckoning {
	return reckoning{Load: l, Rate: rateOnKafka(l, f), Group: groupsOnKafka(l, f), Wait: waitOnKafka(l, f), Rabbit: onRabbit(l, f), SQS: onSQS(l, f)}
}

// cpuPerRetry is the consumer's processor time, in seconds, at the highest steady rate that was measured.
func (f figures) cpuPerRetry() float64 { return f.PacedCores / (paced * retriesEach) }

func rateOnKafka(l load, f figures) []line {
	r, replicas := l.Retries, float64(l.Replicas)
	one := float64(paced * retriesEach)
	processes := math.Ceil(r / one / l.Share)
	cores := r * f.cpuPerRetry() / l.Share
	partitions := math.Ceil(r / (one / pacedPartition) / l.Share)
	broker := r * brokerCPU * replicas / l.Share
	in, writes := r*f.RetryBytes, r*f.RetryBytes*replicas
	return []line{
		{"consumer processes", fmt.Sprintf("%s / %s / %g", whole(r), whole(one), l.Share), whole(processes)},
		{"cores of the consumers", fmt.Sprintf("%s x %.0f us / %g", whole(r), f.cpuPerRetry()*1e6, l.Share), about(cores)},
		{"memory of the consumers", fmt.Sprintf("%s x %.0f MiB", whole(processes), f.FloodMemory), about(processes*f.FloodMemory/1024) + " GiB"},
		{"partitions of each delay topic", fmt.Sprintf("%s / (%s / %d) / %g", whole(r), whole(one), pacedPartition, l.Share), whole(partitions)},
		{"cores of the brokers", fmt.Sprintf("%s x %.1f us x %d / %g", whole(r), brokerCPU*1e6, l.Replicas, l.Share), about(broker)},
		{"network into the brokers, and out to the consumers", fmt.Sprintf("%s x %s B, each", whole(r), whole(f.RetryBytes)), size(in) + "/s"},
		{"network between the brokers", fmt.Sprintf("(%d - 1) x that", l.Replicas), size(in*(replicas-1)) + "/s"},
		{"writes to the disks", fmt.Sprintf("%d x that", l.Replicas), size(writes) + "/s"},
		{"disk for what is settled and not yet given back", fmt.Sprintf("that x %.0f s", sweep), size(writes * sweep)},
		{"brokers", fmt.Sprintf("the largest of %s / %d cores, %s/s / %s/s, and %d", about(broker), brokerCores, size(writes), size(brokerWrites), l.Replicas),
			whole(max(math.Ceil(broker/brokerCores), math.Ceil(writes/brokerWrites), replicas))},
	}
}

// ownTopics are the topics of a subscription: its levels, the retry topic and the DLQ, which have partitions as the
// configuration says, and the two of commands and of what became of dead letters, which have one.
func ownTopics() (wide, narrow int) {
	return len(delayqueue.NewLadder(redeliver.Policy{})) + 2, 2
}

func groupsOnKafka(l load, f figures) []line {
	wide, narrow := ownTopics()
	few, many := wide+narrow, wide*maxOwn+narrow
	copies := func(partitions int) float64 { return float64(partitions * l.Groups * l.Replicas) }
	return []line{
		{"topics", fmt.Sprintf("%s x (%d levels + retry + DLQ + control + state)", whole(float64(l.Groups)), wide-2), whole(float64(l.Groups * few))},
		{"replicas of partitions, by default", fmt.Sprintf("%s x (%d x %d + %d) x %d", whole(float64(l.Groups)), wide, maxOwn, narrow, l.Replicas), whole(copies(many))},
		{"brokers for them", fmt.Sprintf("at %s on each", whole(brokerReplicas)), whole(math.Ceil(copies(many) / brokerReplicas))},
		{"replicas of partitions, RetryPartitions 1", fmt.Sprintf("%s x (%d x 1 + %d) x %d", whole(float64(l.Groups)), wide, narrow, l.Replicas), whole(copies(few))},
		{"brokers for them", fmt.Sprintf("at %s on each", whole(brokerReplicas)), whole(math.Ceil(copies(few) / brokerReplicas))},
		{"commits, all groups busy, one process each", fmt.Sprintf("%s x %d/s", whole(float64(l.Groups)), commitsASecond), whole(float64(l.Groups*commitsASecond)) + "/s"},
		{"disk of active segments, which are not given back", fmt.Sprintf("%s x %d levels x %d partitions x 16 MiB x %d, at most", whole(float64(l.Groups)), wide-2, 1, l.Replicas),
			size(float64(l.Groups*(wide-2)*l.Replicas) * segment)},
		{"memory of the processes, two for each group", fmt.Sprintf("%s x 2 x %.0f MiB", whole(float64(l.Groups)), f.IdleMemory), about(float64(l.Groups)*2*f.IdleMemory/1024) + " GiB"},
	}
}

func waitOnKafka(l load, f figures) []line {
	replicas := float64(l.Replicas)
	disk := l.Waiting * f.RetryBytes * replicas
	brokers := max(math.Ceil(disk/brokerDisk), replicas)
	segments := math.Ceil(disk / segment / brokers)
	return []line{
		{"disk", fmt.Sprintf("%s x %s B x %d", whole(l.Waiting), whole(f.RetryBytes), l.Replicas), size(disk)},
		{"brokers for it", fmt.Sprintf("at %s on each, at least %d", size(brokerDisk), l.Replicas), whole(brokers)},
		{"segments of 16 MiB on each broker", fmt.Sprintf("%s / 16 MiB / %s", size(disk), whole(brokers)), whole(segments)},
		{"mapped files on each broker", fmt.Sprintf("%s x %d, where Linux allows %s", whole(segments), mapped, whole(mapLimit)), whole(segments * mapped)},
		{"memory of a consumer", "does not grow with what waits", fmt.Sprintf("%.0f MiB", f.IdleMemory)},
		{"the same in PerKey order", fmt.Sprintf("%s x %.0f B, in all processes together; MaxParked bounds it", whole(l.Waiting), parked), size(l.Waiting * parked)},
		{"until all have run, where they fall due at one time", fmt.Sprintf("%s / %s/s", whole(l.Waiting), whole(l.Retries)), span(l.Waiting / l.Retries)},
	}
}

func onRabbit(l load, f figures) []line {
	one := f.RabbitRate * retriesEach
	queues := len(delayqueue.NewLadder(redeliver.Policy{})) + 4
	pairs := math.Ceil(l.Retries / one / l.Share)
	return []line{
		{"pairs of cores, broker and consumer together", fmt.Sprintf("%s / (%s x %d) / %g", whole(l.Retries), whole(f.RabbitRate), retriesEach, l.Share), whole(pairs)},
		{"memory of the consumers", fmt.Sprintf("%s x %.0f MiB", whole(pairs), f.RabbitMemory), about(pairs*f.RabbitMemory/1024) + " GiB"},
		{"quorum queues", fmt.Sprintf("%s x (%d levels + the queue + retry + suspects + DLQ)", whole(float64(l.Groups)), queues-4), whole(float64(l.Groups * queues))},
		{"their replicas", fmt.Sprintf("x %d", l.Replicas), whole(float64(l.Groups * queues * l.Replicas))},
		{"memory of the brokers for what waits", fmt.Sprintf("%s x %.2f GB for a million x %d", whole(l.Waiting), rabbitWaiting/1e9, l.Replicas), size(l.Waiting / 1e6 * rabbitWaiting * float64(l.Replicas))},
	}
}

func onSQS(l load, f figures) []line {
	second := l.Retries * f.SQSRetry
	hops := math.Ceil(l.Wait.Seconds() / sqsDelay)
	waits := l.Waiting * hops * f.SQSRetry
	return []line{
		{"requests", fmt.Sprintf("%s x %.2f", whole(l.Retries), f.SQSRetry), whole(second) + "/s"},
		{"in a month of 30 days", fmt.Sprintf("that x %s s", whole(month)), about(second*month/1e9) + " billion"},
		{"price of a month", "by the list below", dollars(sqsPrice(second * month))},
		{fmt.Sprintf("requests while %s messages wait for %s", whole(l.Waiting), span(l.Wait.Seconds())), fmt.Sprintf("%s x %s hops x %.2f", whole(l.Waiting), whole(hops), f.SQSRetry), about(waits/1e9) + " billion"},
		{"price of that", "by the list below, nothing else that month", dollars(sqsPrice(waits))},
		{"queues", fmt.Sprintf("%s x (the queue + suspects + DLQ)", whole(float64(l.Groups))), whole(float64(l.Groups * 3))},
	}
}

// sqsPrice is what Amazon asks in a month for so many requests to standard queues in us-east-1, in US dollars, without the
// free ones.
func sqsPrice(requests float64) float64 {
	const tier = 100e9
	price := 0.0
	for _, t := range []struct{ most, million float64 }{{tier, 0.40}, {tier, 0.30}, {math.Inf(1), 0.24}} {
		n := min(requests, t.most)
		price += n / 1e6 * t.million
		requests -= n
	}
	return price
}
