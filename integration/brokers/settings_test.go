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
