import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.producer.RoundRobinPartitioner;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Utils;

/**
 * Where Kafka's own Java client sends records, as text.
 *
 * <pre>
 *   java -cp "kafka-clients.jar and its dependencies" GoldenPartitions.java > java-4.1.0.txt
 * </pre>
 *
 * hash: SHA-256 of the murmur2 of every key (golden_keys.py has the same keys), 32 bits each, little-endian; the first ones.
 * keyed: the same of the partitions of so many.
 * round_robin: so many partitions, those without a leader ("-": none), the first choices.
 * load: so many partitions, those that can be sent to, their queues' sizes, the cumulative frequency table ("-": none).
 */
public final class GoldenPartitions {
    private static final int KEYS = 12_000;
    private static final int SHOWN = 20;

    public static void main(String[] args) throws Exception {
        byte[][] keys = keys();
        print("hash", IntStream.range(0, KEYS).map(i -> Utils.murmur2(keys[i])).toArray());
        for (int count : new int[] {1, 2, 3, 8, 200, 1000})
            print("keyed " + count, IntStream.range(0, KEYS).map(i -> BuiltInPartitioner.partitionForKey(keys[i], count)).toArray());
        roundRobin(4);
        roundRobin(5, 0, 3);
        roundRobin(3, 0, 2);
        roundRobin(3, 0, 1, 2);
        load(5, new int[] {0, 1, 2, 3, 4}, 5, 0, 3, 0, 1);
        load(3, new int[] {0, 1, 2}, 0, 3, 1);
        load(3, new int[] {0, 1, 2}, 2, 2, 2);
        load(3, new int[] {0, 2}, 2, 2);
        load(3, new int[] {1}, 7);
        load(3, new int[] {});
        load(1, new int[] {0}, 4);
    }

    private static byte[][] keys() {
        byte[][] keys = new byte[KEYS][];
        long at = 0;
        for (int k = 0; k < KEYS; k++) {
            keys[k] = new byte[k % 300 == 299 ? 1000 + k : k % 301];
            for (int i = 0; i < keys[k].length; i++) {
                long x = ++at * 0x9E3779B97F4A7C15L;
                keys[k][i] = (byte) (((x ^ x >>> 32) * 0xD6E8FEB86659FD93L) >>> 56);
            }
        }
        return keys;
    }

    private static void print(String name, int[] numbers) throws Exception {
        ByteBuffer bytes = ByteBuffer.allocate(4 * numbers.length).order(ByteOrder.LITTLE_ENDIAN);
        for (int number : numbers)
            bytes.putInt(number);
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(bytes.array());
        System.out.println(name + " " + HexFormat.of().formatHex(digest) + " " + text(Arrays.copyOf(numbers, SHOWN)));
    }

    private static void roundRobin(int count, Integer... leaderless) {
        Set<Integer> without = Set.of(leaderless);
        Node node = new Node(0, "localhost", 9092);
        List<PartitionInfo> infos = new ArrayList<>();
        for (int p = 0; p < count; p++)
            infos.add(new PartitionInfo("t", p, without.contains(p) ? null : node, new Node[0], new Node[0]));
        Cluster cluster = new Cluster("id", List.of(node), infos, Set.of(), Set.of());
        try (RoundRobinPartitioner partitioner = new RoundRobinPartitioner()) {
            int[] chosen = IntStream.range(0, SHOWN).map(i -> partitioner.partition("t", null, null, null, null, cluster)).toArray();
            int[] shown = Arrays.stream(leaderless).mapToInt(Integer::intValue).toArray();
            System.out.println("round_robin " + count + " " + text(shown) + " " + text(chosen));
        }
    }

    /** The arrays are as long as the topic has partitions, as in RecordAccumulator.partitionReady. */
    private static void load(int count, int[] partitions, int... sizes) throws Exception {
        BuiltInPartitioner partitioner = new BuiltInPartitioner(new LogContext(), "t", 1);
        partitioner.updatePartitionLoadStats(Arrays.copyOf(sizes, count), Arrays.copyOf(partitions, count), sizes.length);
        Object stats = field(partitioner, "partitionLoadStats");
        int[] table = stats == null ? new int[0] : Arrays.copyOf((int[]) field(stats, "cumulativeFrequencyTable"), sizes.length);
        System.out.println("load " + count + " " + text(partitions) + " " + text(sizes) + " " + text(table));
    }

    private static Object field(Object of, String name) throws Exception {
        Field field = of.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    private static String text(int[] numbers) {
        return numbers.length == 0 ? "-" : Arrays.stream(numbers).mapToObj(Integer::toString).collect(Collectors.joining(","));
    }
}
