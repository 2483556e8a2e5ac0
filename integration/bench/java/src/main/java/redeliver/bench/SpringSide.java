package redeliver.bench;

import java.math.BigInteger;
import java.util.HashMap;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.retrytopic.RetryTopicConfigurationSupport;
import org.springframework.kafka.retrytopic.RetryTopicHeaders;
import org.springframework.kafka.support.ProducerListener;
import org.springframework.kafka.listener.ConsumerAwareRebalanceListener;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/**
 * Spring Kafka with @RetryableTopic. Either all messages succeed, and are settled by that; or every one fails in all of its
 * four attempts, a second apart, and goes to the DLT: it is settled when the broker has confirmed that. Nobody reads the DLT.
 */
@Configuration
@EnableKafka
public class SpringSide extends RetryTopicConfigurationSupport {

	private static final boolean TUNED = Boolean.getBoolean("tuned");
	private static final boolean FAILING = Boolean.getBoolean("failing");
	private static final int THREADS = Integer.getInteger("threads");
	private static final String DLT = System.getProperty("topic") + "-dlt";
	private static final Meter meter = new Meter();

	public static void main(String[] args) throws Exception {
		try (var side = new AnnotationConfigApplicationContext(SpringSide.class)) {
			meter.await();
		} // and it commits
		System.out.println(meter.outcome("@RetryableTopic, 4 attempts 1 s apart, 4 partitions"
				+ (THREADS > 1 ? ", concurrency " + THREADS : "")
				+ (TUNED ? ", seekAfterError=false, linger.ms=0" : ", all else Spring's defaults")));
	}

	@RetryableTopic(attempts = "4", backOff = @BackOff(delay = 1000), numPartitions = "4", autoStartDltHandler = "false")
	@KafkaListener(topics = "${topic}", groupId = "${group}")
	void handle(ConsumerRecord<byte[], byte[]> rec) {
		Header due = rec.headers().lastHeader(RetryTopicHeaders.DEFAULT_HEADER_BACKOFF_TIMESTAMP);
		meter.enter(rec.value(), due == null ? 0 : new BigInteger(due.value()).longValue());
		if (FAILING) {
			throw new IllegalStateException("card declined");
		}
		meter.settle();
	}

	@Override
	protected void configureCustomizers(CustomizersConfigurer customizers) {
		if (TUNED) {
			customizers.customizeErrorHandler(handler -> handler.setSeekAfterError(false));
		}
	}

	private static Map<String, Object> config() {
		Map<String, Object> config = new HashMap<>();
		config.put("bootstrap.servers", System.getProperty("brokers"));
		return config;
	}

	@Bean
	ConsumerFactory<byte[], byte[]> consumerFactory() {
		Map<String, Object> config = config();
		config.put("auto.offset.reset", "earliest");
		return new DefaultKafkaConsumerFactory<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
	}

	@Bean
	KafkaTemplate<byte[], byte[]> kafkaTemplate() {
		Map<String, Object> config = config();
		if (TUNED) {
			config.put("linger.ms", 0);
		}
		var template = new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(config, new ByteArraySerializer(), new ByteArraySerializer()));
		template.setProducerListener(new ProducerListener<>() {
			@Override
			public void onSuccess(ProducerRecord<byte[], byte[]> record, RecordMetadata metadata) {
				if (record.topic().equals(DLT)) {
					meter.settle();
				}
			}
		});
		return template;
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
	ConcurrentKafkaListenerContainerFactory<byte[], byte[]> kafkaListenerContainerFactory(ConsumerFactory<byte[], byte[]> consumers) {
		var factory = new ConcurrentKafkaListenerContainerFactory<byte[], byte[]>();
		factory.setConsumerFactory(consumers);
		factory.setConcurrency(THREADS);
		factory.getContainerProperties().setConsumerRebalanceListener(new ConsumerAwareRebalanceListener() {
			@Override
			public void onPartitionsAssigned(org.apache.kafka.clients.consumer.Consumer<?, ?> consumer,
					java.util.Collection<org.apache.kafka.common.TopicPartition> partitions) {
				if (partitions.stream().anyMatch(p -> p.topic().equals(System.getProperty("topic")))) {
					System.out.println("{\"ready\":true}");
				}
			}
		});
		return factory;
	}
}
