// Prints one line for each error code: "<code> <name> <is a RetriableException> <is an InvalidMetadataException>".
// Run with the jars of Kafka 4.1.0:  java -cp "kafka-clients-4.1.0.jar:slf4j-api-1.7.36.jar" GoldenErrors.java > errors-4.1.0.txt

import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

public class GoldenErrors {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            Exception exception = error.exception();
            System.out.println(error.code() + " " + error.name() + " " + (exception instanceof RetriableException)
                + " " + (exception instanceof InvalidMetadataException));
        }
    }
}
