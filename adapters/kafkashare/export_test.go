package kafkashare

import (
	"time"

	"github.com/redeliver/redeliver/mq"
)

// CheckEvery sets how often the subscriptions of c delete settled records, and try operations that fail.
func CheckEvery(c *mq.Client, d time.Duration) { c.Broker().(*client).checkInterval = d }
