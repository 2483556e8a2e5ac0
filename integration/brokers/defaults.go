package brokers

import "time"

// defaultHeap is the -Xmx of a broker that is alone, where its options do not say.
const defaultHeap = "1g"

// complete sets what the options of all brokers have, where it is zero. A machine that runs test suites beside a broker
// starts it slowly: a RabbitMQ took over 3 min with one core for everything.
func complete(startTimeout *time.Duration, logf *func(format string, args ...any), defaultLogf func(format string, args ...any)) {
	if *startTimeout <= 0 {
		*startTimeout = 8 * time.Minute
	}
	if *logf == nil {
		*logf = defaultLogf
	}
}
