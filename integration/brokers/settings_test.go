package brokers

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/compose"
	"github.com/redeliver/redeliver/integration/rocketmq"
)

func TestComposeFileHasOurSettings(t *testing.T) {
	file := string(compose.Kafka)
	for property, value := range kafkaSettings() {
		if line := fmt.Sprintf("%s: %q\n", imageVariable(property), value); !strings.Contains(file, line) {
			t.Errorf("compose/kafka.yml lacks the line %s", line)
		}
	}
	if image := "image: ${KAFKA_IMAGE:-apache/kafka:" + kafkaVersion + "}\n"; !strings.Contains(file, image) {
		t.Errorf("compose/kafka.yml lacks the line %s", image)
	}
	if pom := "<version>" + kafkaVersion + "</version>"; !strings.Contains(string(kafkaPOM), pom) {
		t.Errorf("kafka/pom.xml lacks %s", pom)
	}
	script, err := os.ReadFile("../setup.sh")
	if err != nil {
		t.Fatal(err)
	}
	if loop := "for version in " + strings.Join(OlderKafkas, " ") + ";"; !strings.Contains(string(script), loop) {
		t.Errorf("setup.sh lacks %s", loop)
	}
}

func TestUsersOfKafka(t *testing.T) {
	p := kafkaNative(KafkaOptions{Users: map[string]string{"ops": "a", "billing": "b"}}, "/d", 1, 2, 3)
	for property, want := range map[string]string{
		"listeners":            "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2,USERS://127.0.0.1:3",
		"advertised.listeners": "PLAINTEXT://127.0.0.1:1,USERS://127.0.0.1:3",
		"super.users":          "User:ANONYMOUS",
		"listener.name.users.plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required user_billing="b" user_ops="a";`,
	} {
		if p[property] != want {
			t.Errorf("%s is %q, want %q", property, p[property], want)
		}
	}
	if none := kafkaNative(KafkaOptions{}, "/d", 1, 2, 3); none["authorizer.class.name"] != "" || strings.Contains(none["listeners"], "USERS") {
		t.Errorf("without users there is an authorizer: %v", none)
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

func TestComposeFileTakesOurElasticMQ(t *testing.T) {
	file := string(compose.SQS)
	for _, line := range []string{
		"image: ${ELASTICMQ_IMAGE:-softwaremill/elasticmq:" + elasticMQVersion + "}\n",
		fmt.Sprintf("${REDELIVER_SQS_PORT:-9324}:%d\"\n", sqsImagePort),
		"${REDELIVER_SQS_HEAP:-" + defaultHeap + "}",
	} {
		if !strings.Contains(file, line) {
			t.Errorf("compose/elasticmq.yml lacks %s", line)
		}
	}
	if pom := "<version>" + elasticMQVersion + "</version>"; !strings.Contains(string(elasticMQPOM), pom) {
		t.Errorf("elasticmq/pom.xml lacks %s", pom)
	}
}

func TestComposeFileTakesOurRedis(t *testing.T) {
	file := string(compose.Redis)
	for _, line := range []string{
		"image: ${REDIS_IMAGE:-redis:" + redisImageVersion + "}\n",
		fmt.Sprintf("${REDELIVER_REDIS_PORT:-%d}:%d\"\n", redisImagePort, redisImagePort),
	} {
		if !strings.Contains(file, line) {
			t.Errorf("compose/redis.yml lacks %s", line)
		}
	}
}

func TestSQSSettingsCanBeReplaced(t *testing.T) {
	got := sqsConf(sqsSettings(SQSOptions{Own: true, Config: map[string]string{"node-address.host": `"*"`}}, "0.0.0.0", 1, 2, "/d"))
	want := `include classpath("application.conf")
messages-storage.enabled = true
messages-storage.uri = "jdbc:h2:/d;WRITE_DELAY=0"
node-address.host = "*"
node-address.port = 2
pekko.loglevel = "INFO"
rest-sqs.bind-hostname = "0.0.0.0"
rest-sqs.bind-port = 1
`
	if got != want {
		t.Errorf("elasticmq.conf = %q, want %q", got, want)
	}
	if strings.Contains(sqsConf(sqsSettings(SQSOptions{}, "", 1, 2, "/d")), "messages-storage") {
		t.Error("the shared server writes to disk")
	}
}

func TestMotoVersionIsThatOfTheRequirements(t *testing.T) {
	if got := motoVersion(); !strings.HasPrefix(got, "5.") {
		t.Errorf("moto's version = %q", got)
	}
}

func TestRocketMQSettingsCanBeReplaced(t *testing.T) {
	got := properties(rocketMQSettings(RocketMQOptions{Properties: map[string]string{"messageDelayLevel": "1s 5s", "timerWheelEnable": "false"}}, "127.0.0.1:1", 4, "/d"))
	want := "bindAddress=127.0.0.1\nbrokerClusterName=redeliver\nbrokerIP1=127.0.0.1\nbrokerId=0\nbrokerName=one\nlistenPort=4\nmessageDelayLevel=1s 5s\n" +
		"namesrvAddr=127.0.0.1:1\nstorePathRootDir=/d\ntimerWheelEnable=false\n"
	if got != want {
		t.Errorf("the broker's settings are %q, want %q", got, want)
	}
	delays, err := rocketmq.Delays(rocketMQSettings(RocketMQOptions{}, "", 4, "")["messageDelayLevel"])
	if err != nil || len(delays) != 18 || slices.Max(delays) != time.Second || slices.Min(delays) != time.Second {
		t.Errorf("by default a message waits %v at its levels (%v)", delays, err)
	}
	if n := strings.Count(string(rocketMQPOM), "<version>"+rocketMQVersion+"</version>"); n != 2 {
		t.Errorf("rocketmq/pom.xml has %d artefacts of %s, not the name server and the broker", n, rocketMQVersion)
	}
}
