package redeliver.bench;

import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLongArray;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.ConsumerSendMsgBackRequestHeader;

/**
 * RocketMQ's push consumer, which handles messages concurrently. Either all of them succeed, and are settled by that; or
 * every one fails in all of its attempts, and is settled when the broker has confirmed that it is in the DLQ.
 */
public final class RocketSide {

	private static final boolean TUNED = Boolean.getBoolean("tuned");
	private static final boolean FAILING = Boolean.getBoolean("failing");
	private static final int RETRIES = Integer.getInteger("retries");
	private static final long DELAY_MILLIS = 1000; // of all levels of the broker
	private static final int THREADS = 64;

	/** The output that the bench reads. RocketMQ's logging writes to System.out. */
	private static final PrintStream out = System.out;

	private static final Meter meter = new Meter();

	/** When each message is due, by its id: the time of its failure plus the delay, as on the other sides. */
	private static final AtomicLongArray due = new AtomicLongArray(Integer.getInteger("messages"));

	/** The positions of messages that have failed for good and are not yet confirmed in the DLQ. */
	private static final Set<Long> leaving = ConcurrentHashMap.newKeySet();

	public static void main(String[] args) throws Exception {
		System.setOut(System.err);
		var consumer = new DefaultMQPushConsumer(System.getProperty("group"), new Confirmed(), new AllocateMessageQueueAveragely());
		consumer.setNamesrvAddr(System.getProperty("brokers"));
		consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
		consumer.setMaxReconsumeTimes(RETRIES);
		consumer.setAwaitTerminationMillisWhenShutdown(20_000);
		if (TUNED) {
			consumer.setConsumeThreadMin(THREADS);
			consumer.setConsumeThreadMax(THREADS);
		}
		consumer.setMessageQueueListener((topic, all, ours) -> {
			if (topic.equals(System.getProperty("topic")) && !ours.isEmpty()) {
				out.println("{\"ready\":true}");
			}
		});
		consumer.subscribe(System.getProperty("topic"), "*");
		consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
			messages.forEach(RocketSide::handle);
			return FAILING ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
		});
		consumer.start();
		meter.await();
		consumer.shutdown(); // and it commits
		out.println(meter.outcome("push consumer, maxReconsumeTimes " + RETRIES + ", consumeThreadMin and Max " + consumer.getConsumeThreadMin()
				+ ", consumeMessageBatchMaxSize " + consumer.getConsumeMessageBatchMaxSize() + ", pullBatchSize " + consumer.getPullBatchSize()
				+ (TUNED ? ", its group with 4 retry queues, all else defaults" : ", all of it defaults but the first")));
		System.exit(0);
	}

	private static void handle(MessageExt message) {
		int id = (int) ByteBuffer.wrap(message.getBody()).getLong();
		meter.enter(message.getBody(), message.getReconsumeTimes() == 0 ? 0 : due.get(id));
		if (!FAILING) {
			meter.settle();
			return;
		}
		if (message.getReconsumeTimes() == RETRIES) {
			leaving.add(message.getCommitLogOffset());
		}
		due.set(id, System.currentTimeMillis() + DELAY_MILLIS);
	}

	/** Reads the broker's answers. A failed message is sent back to the broker, identified by its position. */
	private static final class Confirmed implements RPCHook {

		@Override
		public void doBeforeRequest(String remoteAddr, RemotingCommand request) {
		}

		@Override
		public void doAfterResponse(String remoteAddr, RemotingCommand request, RemotingCommand response) {
			if (request.getCode() == RequestCode.CONSUMER_SEND_MSG_BACK && response != null && response.getCode() == ResponseCode.SUCCESS
					&& leaving.remove(((ConsumerSendMsgBackRequestHeader) request.readCustomHeader()).getOffset())) {
				meter.settle();
			}
		}
	}
}
