package brokers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// sqsSettings are what every ElasticMQ of ours is started with, whatever the way. It listens on bind and port, and its
// queues' URLs name the port that clients see. With a database, a path without an ending, messages outlive the process.
func sqsSettings(o SQSOptions, bind string, port, seenPort int, database string) map[string]string {
	s := map[string]string{
		"rest-sqs.bind-hostname": strconv.Quote(bind),
		"rest-sqs.bind-port":     strconv.Itoa(port),
		"node-address.host":      `"127.0.0.1"`,
		"node-address.port":      strconv.Itoa(seenPort),
		// Its default writes a line for every message into the log.
		"pekko.loglevel": `"INFO"`,
	}
	if o.Own {
		// The database's default is to write what it has confirmed half a second later; a SIGKILL would lose that.
		s["messages-storage.uri"] = strconv.Quote("jdbc:h2:" + database + ";WRITE_DELAY=0")
		s["messages-storage.enabled"] = "true"
	}
	maps.Copy(s, o.Config)
	return s
}

// sqsConf writes settings in the form of elasticmq.conf.
func sqsConf(settings map[string]string) string {
	var b strings.Builder
	b.WriteString("include classpath(\"application.conf\")\n")
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = %s\n", k, settings[k])
	}
	return b.String()
}
