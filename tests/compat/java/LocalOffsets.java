import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.store.OffsetSerializeWrapper;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads a file of local offsets, prints what it holds, adds 1 to every offset, and writes it again. */
public class LocalOffsets {
    public static void main(String[] args) throws Exception {
        Path file = Path.of(args[0]);
        OffsetSerializeWrapper wrapper = OffsetSerializeWrapper.fromJson(
            Files.readString(file, StandardCharsets.UTF_8), OffsetSerializeWrapper.class);
        ConcurrentHashMap<MessageQueue, AtomicLong> moved = new ConcurrentHashMap<>();
        for (Map.Entry<MessageQueue, AtomicLong> entry : new TreeMap<>(wrapper.getOffsetTable()).entrySet()) {
            System.out.println(entry.getKey().getTopic() + " " + entry.getKey().getBrokerName() + " "
                + entry.getKey().getQueueId() + " " + entry.getValue().get());
            moved.put(entry.getKey(), new AtomicLong(entry.getValue().get() + 1));
        }
        wrapper.setOffsetTable(moved);
        Files.writeString(file, wrapper.toJson(true), StandardCharsets.UTF_8);
        System.exit(0);
    }
}
