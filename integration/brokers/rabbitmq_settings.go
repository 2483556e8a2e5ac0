package brokers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// rabbitSettings are what every RabbitMQ of ours is started with, whatever the way.
func rabbitSettings(o RabbitMQOptions) map[string]string {
	c := map[string]string{
		// The management plugin counts queues every 5 s by default; tests that ask it want to wait less.
		"collect_statistics_interval": "1000",
	}
	maps.Copy(c, o.Config)
	return c
}

// rabbitNative adds what a node on loopback ports needs.
func rabbitNative(o RabbitMQOptions, port, managementPort int) map[string]string {
	c := map[string]string{
		"listeners.tcp.default": fmt.Sprintf("127.0.0.1:%d", port),
		"management.tcp.ip":     "127.0.0.1",
		"management.tcp.port":   strconv.Itoa(managementPort),
	}
	maps.Copy(c, rabbitSettings(o))
	return c
}

// rabbitConf writes c in the form of rabbitmq.conf.
func rabbitConf(c map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "%s = %s\n", k, c[k])
	}
	return b.String()
}
