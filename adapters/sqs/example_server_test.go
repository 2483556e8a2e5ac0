package sqs

import "time"

// ServerWith returns the configuration for a server inside the process. Its queue orders has one message for each body.
func ServerWith(bodies ...string) Config {
	server := newFake()
	server.Create("orders")
	for _, body := range bodies {
		server.put("orders", "", body, "", nil)
	}
	return server.config(Config{WaitTime: time.Second})
}
