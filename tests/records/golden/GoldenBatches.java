import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;

/**
 * Kafka's own encoder and decoder of record batches, as text.
 *
 * <pre>
 *   java -cp "kafka-clients.jar and its dependencies" GoldenBatches.java write > batches.txt
 *   java -cp ... GoldenBatches.java read < batches in hex, one a line
 * </pre>
 *
 * write: for each case its name and producer state, its records, and the batch as hex under each codec at its default level.
 * read: for each batch (CRC checked) "batch" and its header, then its records in the same form.
 * A record is "record offset timestamp key value headers", where bytes are hex, null is "-", no headers is ".", and a header
 * is key:value.
 */
public final class GoldenBatches {
    private static final HexFormat HEX = HexFormat.of();
    private static final long NOW = 1_700_000_000_000L;

    private record Item(long offset, long timestamp, byte[] key, byte[] value, Header... headers) { }

    private record Producer(long id, short epoch, int sequence, boolean transactional) { }

    private static final Producer NOBODY = new Producer(-1L, (short) -1, -1, false);

    public static void main(String[] args) throws IOException {
        switch (args.length == 1 ? args[0] : "") {
            case "write" -> write();
            case "read" -> read();
            default -> throw new IllegalArgumentException("write or read");
        }
    }

    private static void write() {
        golden("plain", NOBODY, new Item(0, NOW, bytes("key"), bytes("value")));
        golden("null-key", NOBODY, new Item(0, NOW, null, bytes("value")));
        golden("null-value", NOBODY, new Item(0, NOW, bytes("key"), null));
        golden("null-key-and-value", NOBODY, new Item(0, NOW, null, null));
        golden("empty-key", NOBODY, new Item(0, NOW, bytes(""), bytes("value")));
        golden("empty-value", NOBODY, new Item(0, NOW, bytes("key"), bytes("")));
        golden("empty-key-and-value", NOBODY, new Item(0, NOW, bytes(""), bytes("")));
        golden("every-null-and-empty", NOBODY, nullsAndEmpties());
        golden("one-header", NOBODY, new Item(0, NOW, bytes("key"), bytes("value"), header("h", "1")));
        golden("three-headers", NOBODY,
            new Item(0, NOW, bytes("key"), bytes("value"), header("h", "1"), header("h", "2"), header("größe", "3")));
        golden("null-and-empty-header-values", NOBODY,
            new Item(0, NOW, null, null, header("null", null), header("empty", ""), header("", "no name")));
        golden("some-with-headers", NOBODY, someWithHeaders());
        golden("timestamps-go-back", NOBODY, timestamps(NOW, NOW - 1, NOW + 1, NOW - 64, NOW + 63, NOW - 100_000, NOW));
        golden("timestamps-far-apart", NOBODY,
            timestamps(1L << 61, 0, 1L << 62, (1L << 61) + (1L << 34), (1L << 61) + (1L << 48), (1L << 61) - (1L << 55)));
        golden("offsets-far-apart", NOBODY, offsets(0, 63, 64, 8191, 8192, 1 << 20, 1 << 27, Integer.MAX_VALUE));
        golden("lengths-around-a-byte-more", NOBODY, lengths(0, 1, 4, 11, 12, 13, 45, 46, 47, 62, 63, 64, 65, 8191, 8192));
        golden("idempotent", new Producer(4711, (short) 3, 17, false), new Item(0, NOW, bytes("key"), bytes("value")));
        golden("transactional", new Producer(4711, (short) 3, Integer.MAX_VALUE, true), timestamps(NOW, NOW + 5));
        golden("many", NOBODY, many(300));
    }

    private static Item[] nullsAndEmpties() {
        byte[][] all = {null, bytes(""), bytes("x"), bytes("a longer text of more than 12 bytes")};
        List<Item> items = new ArrayList<>();
        for (byte[] key : all)
            for (byte[] value : all)
                items.add(new Item(items.size(), NOW, key, value));
        return items.toArray(new Item[0]);
    }

    private static Item[] someWithHeaders() {
        return new Item[] {
            new Item(0, NOW, bytes("0"), bytes("none")),
            new Item(1, NOW, bytes("1"), bytes("one"), header("a", "1")),
            new Item(2, NOW, null, bytes("none")),
            new Item(3, NOW, bytes("3"), null, header("a", "1"), header("b", null), header("a key of over 12 bytes", "2")),
        };
    }

    private static Item[] timestamps(long... timestamps) {
        Item[] items = new Item[timestamps.length];
        for (int i = 0; i < items.length; i++)
            items[i] = new Item(i, timestamps[i], bytes("k" + i), bytes("value " + i));
        return items;
    }

    private static Item[] offsets(long... offsets) {
        Item[] items = new Item[offsets.length];
        for (int i = 0; i < items.length; i++)
            items[i] = new Item(offsets[i], NOW, bytes("k" + i), bytes("value " + i));
        return items;
    }

    private static Item[] lengths(int... lengths) {
        Item[] items = new Item[lengths.length];
        for (int i = 0; i < items.length; i++)
            items[i] = new Item(i, NOW, bytes("k".repeat(lengths[i] % 100)), bytes("v".repeat(lengths[i])));
        return items;
    }

    private static Item[] many(int count) {
        Item[] items = new Item[count];
        for (int i = 0; i < count; i++)
            items[i] = new Item(i, NOW + i * 7L % 1000, bytes("key-" + i), bytes("v".repeat(i % 30) + i));
        return items;
    }

    private static void golden(String name, Producer producer, Item... items) {
        System.out.printf("case %s %d %d %d %b%n",
            name, producer.id, producer.epoch, producer.sequence, producer.transactional);
        for (Item item : items)
            print(item.offset, item.timestamp, item.key, item.value, item.headers);
        for (CompressionType type : CompressionType.values())
            System.out.println(type.name + " " + HEX.formatHex(encode(type, producer, items)));
    }

    private static byte[] encode(CompressionType type, Producer producer, Item... items) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1024), RecordBatch.MAGIC_VALUE_V2,
            Compression.of(type).build(), TimestampType.CREATE_TIME, 0L, RecordBatch.NO_TIMESTAMP, producer.id, producer.epoch,
            producer.sequence, producer.transactional, RecordBatch.NO_PARTITION_LEADER_EPOCH);
        for (Item item : items)
            builder.appendWithOffset(item.offset, item.timestamp, item.key, item.value, item.headers);
        ByteBuffer buffer = builder.build().buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private static void read() throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine())
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(line))).batches()) {
                batch.ensureValid();
                System.out.printf("batch %s %d %d %d %b %d%n", batch.compressionType().name, batch.producerId(),
                    batch.producerEpoch(), batch.baseSequence(), batch.isTransactional(), batch.maxTimestamp());
                for (Record record : batch)
                    print(record.offset(), record.timestamp(), bytes(record.key()), bytes(record.value()), record.headers());
            }
    }

    private static void print(long offset, long timestamp, byte[] key, byte[] value, Header... headers) {
        List<String> texts = new ArrayList<>();
        for (Header header : headers)
            texts.add(hex(header.key().getBytes(StandardCharsets.UTF_8)) + ":" + hex(header.value()));
        System.out.printf("record %d %d %s %s %s%n",
            offset, timestamp, hex(key), hex(value), texts.isEmpty() ? "." : String.join(",", texts));
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "-" : "x" + HEX.formatHex(bytes);
    }

    private static Header header(String key, String value) {
        return new RecordHeader(key, value == null ? null : bytes(value));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null)
            return null;
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }
}
