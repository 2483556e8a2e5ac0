package kafkashare

import "time"

// CheckEvery sets how often the subscriptions of c delete settled records, and try operations that fail.
func CheckEvery(c *Client, d time.Duration) { c.checkInterval = d }
