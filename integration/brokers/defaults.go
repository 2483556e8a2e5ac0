package brokers

import "time"

// defaultHeap is the -Xmx of a broker that runs alone, unless its options set it.
const defaultHeap = "1g"

// complete sets the defaults of the options that all brokers share. The default timeout is long, because a machine that
// also runs test suites starts a broker slowly: a RabbitMQ took over 3 min when all shared one core.
func complete(startTimeout *time.Duration, logf *func(format string, args ...any), defaultLogf func(format string, args ...any)) {
	if *startTimeout <= 0 {
		*startTimeout = 8 * time.Minute
	}
	if *logf == nil {
		*logf = defaultLogf
	}
}
