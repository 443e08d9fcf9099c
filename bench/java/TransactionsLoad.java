import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Loads a broker with transactions of Kafka's own producer, as `transactions_load commits` does with librdkafka.
 *
 *   java -cp 'JARS/*' TransactionsLoad.java PORTS TOPIC PARTITIONS RECORDS RECORD_BYTES WARM_SECONDS SECONDS
 *
 * One producer writes transactions one after the other, each with RECORDS messages to one partition, the next
 * one to the next partition. It reports the transactions per second, and the times from the call of commit to
 * its return; the messages are acknowledged before that call. All other settings are the producer's defaults.
 */
public final class TransactionsLoad {
    private static final int MAX_SAMPLES = 1_000_000;

    private final KafkaProducer<byte[], byte[]> producer;
    private final String topic;
    private final int partitions;
    private final int records;
    private final byte[] value;
    private long transactions;

    private TransactionsLoad(String ports, String topic, int partitions, int records, int recordBytes) {
        this.topic = topic;
        this.partitions = partitions;
        this.records = records;
        this.value = new byte[recordBytes];
        new Random(1).nextBytes(value);
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "bootstrap.servers", "127.0.0.1:" + ports.replace(",", ",127.0.0.1:"),
            "client.id", "bench",
            "transactional.id", topic));
        producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
    }

    /** Write one transaction. Return the nanoseconds of its commit. */
    private long transact() {
        int partition = (int) (transactions++ % partitions);
        producer.beginTransaction();
        for (int i = 0; i < records; i++) producer.send(new ProducerRecord<>(topic, partition, null, value));
        producer.flush();
        long began = System.nanoTime();
        producer.commitTransaction(); // it throws if a message or the transaction has failed
        return System.nanoTime() - began;
    }

    private void run(double warmSeconds, double seconds) {
        long until = System.nanoTime() + (long) (warmSeconds * 1e9);
        while (System.nanoTime() < until) transact();
        long[] times = new long[MAX_SAMPLES];
        int count = 0;
        System.out.println("begin");
        long began = System.nanoTime();
        until = began + (long) (seconds * 1e9);
        while (System.nanoTime() < until && count < MAX_SAMPLES) times[count++] = transact();
        double elapsed = (System.nanoTime() - began) / 1e9;
        System.out.println("end");
        Arrays.sort(times, 0, count);
        System.out.println(String.format(Locale.ROOT,
            "{\"seconds\": %.6f, \"transactions\": %d, \"per_s\": %.3f, \"p50_ms\": %.4f, \"p99_ms\": %.4f, "
                + "\"max_ms\": %.4f}",
            elapsed, count, count / elapsed, times[count / 2] / 1e6, times[(int) (count * 0.99)] / 1e6,
            times[count - 1] / 1e6));
    }

    public static void main(String[] arguments) {
        TransactionsLoad load = new TransactionsLoad(
            arguments[0], arguments[1], Integer.parseInt(arguments[2]), Integer.parseInt(arguments[3]),
            Integer.parseInt(arguments[4]));
        load.run(Double.parseDouble(arguments[5]), Double.parseDouble(arguments[6]));
        System.out.flush();
        Runtime.getRuntime().halt(0); // the shutdown of the producer is not measured
    }
}
