package redeliver.spring;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.support.KafkaHeaders;
import org.springframework.messaging.handler.annotation.Header;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.util.backoff.FixedBackOff;

/**
 * A service like those of Spring Kafka's users. Topics and group are system properties. Its handlers fail until it reads
 * the line "fix" on stdin. It prints a line for each message that a handler, or the listener on redeliver's DLQ, gets:
 * the fields are in base64, after tabs. It ends at the end of stdin.
 */
@Configuration
@EnableKafkaRetryTopic
public class Service {

	private static volatile boolean fixed;

	public static void main(String[] args) throws Exception {
		try (var service = new AnnotationConfigApplicationContext(Service.class);
				var in = new BufferedReader(new InputStreamReader(System.in))) {
			for (String line = in.readLine(); line != null; line = in.readLine()) {
				if (line.equals("fix")) {
					fixed = true;
					say("fixed");
				}
			}
		}
	}

	/** Non-blocking retries: fails go to a retry topic and then to "topic-dlt". */
	@RetryableTopic(attempts = "3", backOff = @BackOff(delay = 200), autoStartDltHandler = "false")
	@KafkaListener(topics = "${retryable}", groupId = "${group}")
	void retryable(ConsumerRecord<String, String> rec) {
		handle(rec);
	}

	/** Non-blocking retries that are far away when the group moves to redeliver. */
	@RetryableTopic(attempts = "3", backOff = @BackOff(delay = 3_600_000), autoStartDltHandler = "false")
	@KafkaListener(topics = "${moving}", groupId = "${group}")
	void moving(ConsumerRecord<String, String> rec) {
		handle(rec);
	}

	/** Blocking retries, then the recoverer. */
	@KafkaListener(topics = "${plain}", groupId = "${group}", containerFactory = "recovering")
	void plain(ConsumerRecord<String, String> rec) {
		handle(rec);
	}

	/** Reads the DLQ of a group of redeliver's as if Spring had filled it. */
	@KafkaListener(topics = "${ours}", groupId = "${group}-reader")
	void dead(ConsumerRecord<String, String> rec,
			@Header(KafkaHeaders.DLT_ORIGINAL_TOPIC) String topic,
			@Header(KafkaHeaders.DLT_ORIGINAL_PARTITION) int partition,
			@Header(KafkaHeaders.DLT_ORIGINAL_OFFSET) long offset,
			@Header(KafkaHeaders.DLT_ORIGINAL_TIMESTAMP) long timestamp,
			@Header(KafkaHeaders.DLT_ORIGINAL_TIMESTAMP_TYPE) String timestampType,
			@Header(KafkaHeaders.DLT_ORIGINAL_CONSUMER_GROUP) String group,
			@Header(KafkaHeaders.DLT_EXCEPTION_FQCN) String type,
			@Header(KafkaHeaders.DLT_EXCEPTION_MESSAGE) String message,
			@Header(KafkaHeaders.DLT_EXCEPTION_STACKTRACE) String stacktrace) {
		say("dead", rec.value(), topic, partition, offset, timestamp, timestampType, group, type, message, stacktrace);
	}

	private static void handle(ConsumerRecord<String, String> rec) {
		if (!fixed) {
			throw new IllegalStateException("declined: " + rec.value());
		}
		String headers = Stream.of(rec.headers().toArray()).map(h -> h.key()).sorted().collect(Collectors.joining(" "));
		say("handled", rec.topic(), rec.key(), rec.value(), headers);
	}

	private static void say(String what, Object... fields) {
		String line = Stream.concat(Stream.of(what), Stream.of(fields).map(f -> Base64.getEncoder()
				.encodeToString(String.valueOf(f).getBytes(StandardCharsets.UTF_8)))).collect(Collectors.joining("\t"));
		synchronized (System.out) {
			System.out.println(line);
			System.out.flush();
		}
	}

	private static Map<String, Object> config() {
		Map<String, Object> config = new HashMap<>();
		config.put("bootstrap.servers", System.getProperty("brokers"));
		return config;
	}

	@Bean
	ConsumerFactory<String, String> consumerFactory() {
		Map<String, Object> config = config();
		config.put("auto.offset.reset", "earliest");
		return new DefaultKafkaConsumerFactory<>(config, new StringDeserializer(), new StringDeserializer());
	}

	@Bean
	KafkaTemplate<String, String> kafkaTemplate() {
		return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(config(), new StringSerializer(), new StringSerializer()));
	}

	@Bean
	KafkaAdmin kafkaAdmin() {
		return new KafkaAdmin(config());
	}

	@Bean
	TaskScheduler taskScheduler() {
		return new ThreadPoolTaskScheduler();
	}

	@Bean
	ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory(ConsumerFactory<String, String> consumers) {
		var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
		factory.setConsumerFactory(consumers);
		return factory;
	}

	@Bean
	ConcurrentKafkaListenerContainerFactory<String, String> recovering(ConsumerFactory<String, String> consumers,
			KafkaTemplate<String, String> template) {
		var factory = kafkaListenerContainerFactory(consumers);
		factory.setCommonErrorHandler(new DefaultErrorHandler(new DeadLetterPublishingRecoverer(template), new FixedBackOff(0, 1)));
		factory.getContainerProperties().setDeliveryAttemptHeader(true);
		return factory;
	}
}
