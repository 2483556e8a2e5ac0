package brokers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// sqsSettings returns the settings of every ElasticMQ that the tests start, in either way. It listens on bind and port,
// and the URLs of its queues have seenPort, the port that clients see. If database, a path without an extension, is
// set, messages survive the process.
func sqsSettings(o SQSOptions, bind string, port, seenPort int, database string) map[string]string {
	s := map[string]string{
		"rest-sqs.bind-hostname": strconv.Quote(bind),
		"rest-sqs.bind-port":     strconv.Itoa(port),
		"node-address.host":      `"127.0.0.1"`,
		"node-address.port":      strconv.Itoa(seenPort),
		// By default it logs a line for every message.
		"pekko.loglevel": `"INFO"`,
	}
	if o.Own {
		// By default the database writes confirmed messages half a second later, and a SIGKILL would lose them.
		s["messages-storage.uri"] = strconv.Quote("jdbc:h2:" + database + ";WRITE_DELAY=0")
		s["messages-storage.enabled"] = "true"
	}
	maps.Copy(s, o.Config)
	return s
}

// sqsConf returns settings in the format of elasticmq.conf.
func sqsConf(settings map[string]string) string {
	var b strings.Builder
	b.WriteString("include classpath(\"application.conf\")\n")
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = %s\n", k, settings[k])
	}
	return b.String()
}
