package brokers

import (
	"maps"
	"path/filepath"
	"strconv"
	"strings"
)

// rocketMQSettings are what every broker of ours is started with. All else is RocketMQ's default: one node that confirms
// what the operating system has, as Kafka does.
func rocketMQSettings(o RocketMQOptions, names string, port int, store string) map[string]string {
	s := map[string]string{
		"brokerClusterName": "redeliver",
		"brokerName":        "one",
		"brokerId":          "0",
		"brokerIP1":         "127.0.0.1",
		"bindAddress":       "127.0.0.1",
		"listenPort":        strconv.Itoa(port),
		"namesrvAddr":       names,
		"storePathRootDir":  store,
		// A retry takes the third level first and the next one each time. With the default, 10 s and longer, nothing could
		// be compared with a policy of retries after one second.
		"messageDelayLevel": strings.TrimSpace(strings.Repeat("1s ", 18)),
	}
	maps.Copy(s, o.Properties)
	return s
}

func rocketMQNamesSettings(port int, dir string) map[string]string {
	return map[string]string{
		"listenPort":      strconv.Itoa(port),
		"bindAddress":     "127.0.0.1",
		"kvConfigPath":    filepath.Join(dir, "kvConfig.json"),
		"configStorePath": filepath.Join(dir, "namesrv.properties"),
	}
}
