package redeliver.bench;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32C;

/** Counts and measures the messages of a side, as meter.go does for the sides in Go. It is safe for concurrent use. */
final class Meter {

	private final long want = Long.getLong("messages");
	private final long warm = Long.getLong("warm");
	private final Instant began = Instant.now();
	private final long cpu = cpu();
	private final AtomicLong entries = new AtomicLong();
	private final AtomicLong sum = new AtomicLong();
	private final AtomicLong settled = new AtomicLong();
	private final Samples late = new Samples(1 << 20);
	private final Samples lag = new Samples(1 << 20);
	private final CountDownLatch done = new CountDownLatch(1);
	private volatile Instant first;
	private volatile Instant end;
	private volatile long endCpu;

	/** Records a run of the handler; due is 0 for the first attempt. */
	void enter(byte[] value, long dueMillis) {
		Instant now = Instant.now();
		if (entries.getAndIncrement() == 0) {
			first = now;
		}
		sum.addAndGet(fold(value));
		if (ByteBuffer.wrap(value).getLong() < warm) {
			return;
		}
		long nanos = now.getEpochSecond() * 1_000_000_000L + now.getNano();
		if (dueMillis == 0) {
			lag.add(nanos - ByteBuffer.wrap(value).getLong(8));
		}
		else {
			late.add(nanos - dueMillis * 1_000_000L);
		}
	}

	/** Records the end of a message. */
	void settle() {
		if (settled.incrementAndGet() == want) {
			end = Instant.now();
			endCpu = cpu();
			done.countDown();
		}
	}

	void await() throws InterruptedException {
		done.await();
	}

	/** Returns the outcome, in the same form as a side in Go. */
	String outcome(String settings) throws IOException {
		return String.format(Locale.ROOT,
				"{\"outcome\":{\"count\":%d,\"sum\":%s,\"entries\":%d,\"seconds\":%f,\"joined\":%f,\"cpu\":%f,\"peak_rss\":%d,"
						+ "\"finished\":\"%s\",\"settings\":\"%s\",\"late\":%s,\"lag\":%s}}",
				settled.get(), Long.toUnsignedString(sum.get()), entries.get(), seconds(first, end), seconds(began, first),
				(endCpu - cpu) / 1e9, peak(), end, settings, late.summary(), lag.summary());
	}

	private static double seconds(Instant from, Instant to) {
		return (to.toEpochMilli() - from.toEpochMilli()) / 1e3;
	}

	private static long cpu() {
		return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
	}

	private static long peak() throws IOException {
		for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
			if (line.startsWith("VmHWM:")) {
				return Long.parseLong(line.replaceAll("[^0-9]", "")) << 10;
			}
		}
		return 0;
	}

	/** Returns one message's part of the checksum, as in payload.go. */
	private static long fold(byte[] value) {
		CRC32C crc = new CRC32C();
		crc.update(value);
		long x = ByteBuffer.wrap(value).getLong() << 32 ^ crc.getValue();
		x = (x ^ x >>> 30) * 0xbf58476d1ce4e5b9L;
		x = (x ^ x >>> 27) * 0x94d049bb133111ebL;
		return x ^ x >>> 31;
	}

	/** Durations in nanoseconds. Those that do not fit are counted and dropped. */
	private static final class Samples {

		private final long[] room;
		private final AtomicInteger n = new AtomicInteger();

		Samples(int most) {
			room = new long[most];
		}

		void add(long nanos) {
			int i = n.getAndIncrement();
			if (i < room.length) {
				room[i] = nanos;
			}
		}

		String summary() {
			long[] all = Arrays.copyOf(room, Math.min(n.get(), room.length));
			if (all.length == 0) {
				return "null";
			}
			Arrays.sort(all);
			return String.format(Locale.ROOT,
					"{\"samples\":%d,\"min\":%f,\"p50\":%f,\"p99\":%f,\"p999\":%f,\"max\":%f,\"early\":%d,\"over10ms\":%d,\"over100ms\":%d,\"overflow\":%d}",
					n.get(), all[0] / 1e6, at(all, 0.5), at(all, 0.99), at(all, 0.999), all[all.length - 1] / 1e6,
					Arrays.stream(all).filter(d -> d < 0).count(), Arrays.stream(all).filter(d -> d > 10_000_000).count(),
					Arrays.stream(all).filter(d -> d > 100_000_000).count(), n.get() - all.length);
		}

		private static double at(long[] all, double q) {
			return all[Math.min(all.length - 1, (int) (q * all.length))] / 1e6;
		}
	}
}
