package brokers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// rabbitSettings returns the settings of every RabbitMQ that the tests start, in either way.
func rabbitSettings(o RabbitMQOptions) map[string]string {
	c := map[string]string{
		// The management plugin counts queues every 5 s by default, which is too slow for the tests that ask it.
		"collect_statistics_interval": "1000",
	}
	maps.Copy(c, o.Config)
	return c
}

// rabbitNative returns the settings of a node on loopback ports.
func rabbitNative(o RabbitMQOptions, port, managementPort int) map[string]string {
	c := map[string]string{
		"listeners.tcp.default": fmt.Sprintf("127.0.0.1:%d", port),
		"management.tcp.ip":     "127.0.0.1",
		"management.tcp.port":   strconv.Itoa(managementPort),
	}
	maps.Copy(c, rabbitSettings(o))
	return c
}

// rabbitConf returns c in the format of rabbitmq.conf.
func rabbitConf(c map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "%s = %s\n", k, c[k])
	}
	return b.String()
}
