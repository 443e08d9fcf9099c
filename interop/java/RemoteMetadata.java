import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

/**
 * Reads records of __remote_log_metadata, each a line of hexadecimal digits, with Kafka's own
 * code. It prints each as Kafka encodes it, in which of fifty partitions Kafka puts it, and what it
 * says.
 */
public class RemoteMetadata {
    public static void main(String[] arguments) {
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        RemoteLogMetadataTopicPartitioner partitioner = new RemoteLogMetadataTopicPartitioner(50);
        Scanner input = new Scanner(System.in);
        while (input.hasNextLine()) {
            byte[] value = HexFormat.of().parseHex(input.nextLine().strip());
            RemoteLogMetadata record = serde.deserialize(value);
            String text = record.toString();
            if (record instanceof RemoteLogSegmentMetadata segment) {
                text += " isTxnIdxEmpty=" + segment.isTxnIdxEmpty();
            }
            String encoded = HexFormat.of().formatHex(serde.serialize(record));
            int partition = partitioner.metadataPartition(record.topicIdPartition());
            System.out.println(encoded + " " + partition + " " + text);
        }
    }
}
