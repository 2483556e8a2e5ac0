package brokers

import (
	"maps"
	"path/filepath"
	"strconv"
	"strings"
)

// rocketMQSettings returns the settings of every broker that the tests start. Everything else is RocketMQ's default:
// one node that confirms a message when the operating system has it, as Kafka does.
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
		// A retry uses the third level first and then the next one each time. RocketMQ's defaults of 10 s and more
		// could not be compared with a policy of retries after one second.
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
