package brokers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/integration/compose"
)

func TestComposeFileHasOurSettings(t *testing.T) {
	file := string(compose.Kafka)
	for property, value := range kafkaSettings() {
		if line := fmt.Sprintf("%s: %q\n", imageVariable(property), value); !strings.Contains(file, line) {
			t.Errorf("compose/kafka.yml lacks the line %s", line)
		}
	}
	if image := "image: apache/kafka:" + kafkaVersion + "\n"; !strings.Contains(file, image) {
		t.Errorf("compose/kafka.yml lacks the line %s", image)
	}
	if pom := "<version>" + kafkaVersion + "</version>"; !strings.Contains(string(kafkaPOM), pom) {
		t.Errorf("kafka/pom.xml lacks %s", pom)
	}
}

func TestImageVariable(t *testing.T) {
	for property, want := range map[string]string{
		"log.dirs":       "KAFKA_LOG_DIRS",
		"a.b_c":          "KAFKA_A_B__C",
		"listener-x.ssl": "KAFKA_LISTENER___X_SSL",
	} {
		if got := imageVariable(property); got != want {
			t.Errorf("imageVariable(%q) = %q, want %q", property, got, want)
		}
	}
}

func TestPropertiesEscapesBackslashes(t *testing.T) {
	got := properties(map[string]string{"b": `x\y`, "a": "1"})
	if want := "a=1\nb=x\\\\y\n"; got != want {
		t.Errorf("properties = %q, want %q", got, want)
	}
}

func TestRabbitMQSettingsCanBeReplaced(t *testing.T) {
	o := RabbitMQOptions{Config: map[string]string{"consumer_timeout": "1000", "management.tcp.ip": "::1"}}
	got := rabbitConf(rabbitNative(o, 1, 2))
	want := "collect_statistics_interval = 1000\nconsumer_timeout = 1000\nlisteners.tcp.default = 127.0.0.1:1\n" +
		"management.tcp.ip = ::1\nmanagement.tcp.port = 2\n"
	if got != want {
		t.Errorf("rabbitmq.conf = %q, want %q", got, want)
	}
}

func TestComposeFileTakesOurImages(t *testing.T) {
	file := string(compose.RabbitMQ)
	for _, line := range []string{
		"rabbitmq:${REDELIVER_RABBITMQ_VERSION:-" + rabbitImages[RabbitMQ4] + "}-management",
		"${REDELIVER_RABBITMQ_PORT:-5672}:5672",
		"${REDELIVER_RABBITMQ_MANAGEMENT_PORT:-15672}:15672",
	} {
		if !strings.Contains(file, line) {
			t.Errorf("compose/rabbitmq.yml lacks %s", line)
		}
	}
}
