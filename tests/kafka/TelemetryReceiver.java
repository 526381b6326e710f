// A receiver of clients' metrics (KIP-714) for real brokers: tests/kafka/telemetry.py compiles it and starts brokers with it.
// For each push it writes the file "<number>.bin", MetricsData as it came, and "<number>.txt", what Kafka's own classes read of it,
// after a first line with the client's id, its instance id, its software and whether it is the last push.

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.MetricsData;

public class TelemetryReceiver implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    private static final AtomicInteger COUNT = new AtomicInteger();
    private final Path folder = Path.of(System.getProperty("telemetry.folder"));

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    @Override
    public void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        ByteBuffer data = payload.data();
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        try {
            String name = String.format("%06d", COUNT.getAndIncrement());
            String first = String.join(" ", context.clientId(), payload.clientInstanceId().toString(),
                String.valueOf(payload.isTerminating()), payload.contentType());
            Files.write(folder.resolve(name + ".bin"), bytes);
            // Under its name only when it is whole, because a test looks for it.
            Path part = Files.writeString(folder.resolve(name + ".part"), first + "\n" + MetricsData.parseFrom(bytes));
            Files.move(part, folder.resolve(name + ".txt"), StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void configure(Map<String, ?> configs) {}

    @Override
    public void close() {}
}
