import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.compress.GzipCompression;
import org.apache.kafka.common.compress.Lz4Compression;
import org.apache.kafka.common.compress.ZstdCompression;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/**
 * Compresses batches with the classes that Kafka's Java producer uses.
 *
 * <pre>java -cp "kafka-clients.jar and its dependencies" CompressBatches.java</pre>
 *
 * Reads lines "codec level loops file" from stdin. level: "-" for the default of Kafka. Prints "nanoseconds size" for each: the CPU
 * time of this thread for one batch, and the bytes that the batch becomes.
 */
public final class CompressBatches {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 4);
            Compression compression = compression(words[0], words[1]);
            int loops = Integer.parseInt(words[2]);
            byte[] batch = Files.readAllBytes(Path.of(words[3]));
            int size = 0;
            long started = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
            ByteBuffer buffer = ByteBuffer.allocate(batch.length + 1024); // the producer takes it from its pool
            for (int loop = 0; loop < loops; loop++) {
                buffer.clear();
                ByteBufferOutputStream written = new ByteBufferOutputStream(buffer);
                try (OutputStream records = compression.wrapForOutput(written, RecordBatch.MAGIC_VALUE_V2)) {
                    records.write(batch, 0, batch.length);
                }
                size = written.position();
            }
            long taken = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - started;
            System.out.println(taken / loops + " " + size);
        }
    }

    private static Compression compression(String codec, String level) {
        if (level.equals("-")) {
            return Compression.of(codec).build();
        }
        int number = Integer.parseInt(level);
        return switch (codec) {
            case "gzip" -> new GzipCompression.Builder().level(number).build();
            case "lz4" -> new Lz4Compression.Builder().level(number).build();
            case "zstd" -> new ZstdCompression.Builder().level(number).build();
            default -> throw new IllegalArgumentException(codec + " has no levels");
        };
    }
}
