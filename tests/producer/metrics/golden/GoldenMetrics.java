import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.CumulativeSum;
import org.apache.kafka.common.metrics.stats.Max;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.WindowedCount;
import org.apache.kafka.common.metrics.stats.WindowedSum;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What Kafka's own statistics make of values over time, and what its own producer measures, as text.
 *
 * <pre>
 *   java -cp "kafka-clients.jar and its dependencies" GoldenMetrics.java statistics > statistics.txt
 *   java -cp ... GoldenMetrics.java producer bootstrap.servers topic records option=value ...
 * </pre>
 *
 * statistics: histories, each "history samples window.ms", then "record ms value" and "measure ms" with the average, the
 * maximum, the sum a second, the values a second, the sum a nanosecond, and the sum since the beginning.
 * producer: sends so many records of 100 bytes with keys of 10, waits for them, and prints each metric as "group tags name value".
 */
public final class GoldenMetrics {
    private static final List<MeasurableStat> STATISTICS = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        switch (args.length == 0 ? "" : args[0]) {
            case "statistics" -> statistics();
            case "producer" -> producer(args);
            default -> throw new IllegalArgumentException("statistics or producer");
        }
    }

    private static void statistics() {
        Random random = new Random(7);
        for (int[] shape : new int[][] {{2, 30_000, 9_000}, {2, 30_000, 70_000}, {1, 1_000, 900}, {3, 100, 60}, {5, 10, 40}, {2, 1, 3}}) {
            history(random, shape[0], shape[1], shape[2]);
        }
    }

    private static void history(Random random, int samples, long windowMs, int stepMs) {
        System.out.printf("history %d %d%n", samples, windowMs);
        STATISTICS.clear();
        STATISTICS.addAll(List.of(new Avg(), new Max(), new Rate(), new Rate(new WindowedCount()),
            new Rate(TimeUnit.NANOSECONDS, new WindowedSum()), new CumulativeSum()));
        MetricConfig config = new MetricConfig().samples(samples).timeWindow(windowMs, TimeUnit.MILLISECONDS);
        long now = 1_000;
        record(config, random, now);
        for (int i = 0; i < 80; i++) {
            now += random.nextInt(3) == 0 ? 0 : random.nextInt(stepMs);
            if (random.nextInt(20) == 0) {
                now += samples * windowMs;
            }
            if (random.nextInt(3) == 0) {
                measure(config, now);
            } else {
                record(config, random, now);
            }
        }
        measure(config, now);
        measure(config, now + samples * windowMs - 1);
        measure(config, now + samples * windowMs);
    }

    private static void record(MetricConfig config, Random random, long now) {
        double value = random.nextInt(1_000_000) - 1_000;
        STATISTICS.forEach(statistic -> statistic.record(config, value, now));
        System.out.printf("record %d %.0f%n", now, value);
    }

    private static void measure(MetricConfig config, long now) {
        StringBuilder line = new StringBuilder("measure " + now);
        STATISTICS.forEach(statistic -> line.append(' ').append(statistic.measure(config, now)));
        System.out.println(line);
    }

    private static void producer(String[] args) throws Exception {
        Properties options = new Properties();
        options.put("bootstrap.servers", args[1]);
        for (int i = 4; i < args.length; i++) {
            String[] option = args[i].split("=", 2);
            options.put(option[0], option[1]);
        }
        try (var producer = new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < Integer.parseInt(args[3]); i++) {
                producer.send(new ProducerRecord<>(args[2], 0, new byte[10], new byte[100]));
            }
            producer.flush();
            print(producer.metrics());
        }
    }

    private static void print(Map<MetricName, ? extends Metric> metrics) {
        TreeMap<String, Object> lines = new TreeMap<>();
        metrics.forEach((name, metric) -> lines.put(name.group() + " " + tags(name) + " " + name.name(), metric.metricValue()));
        lines.forEach((name, value) -> System.out.println(name + " " + value));
    }

    private static String tags(MetricName name) {
        TreeMap<String, String> tags = new TreeMap<>(name.tags());
        tags.remove("client-id");
        return tags.isEmpty() ? "." : String.join(",", tags.values());
    }
}
