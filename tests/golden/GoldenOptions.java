// Prints one line for each option of Java's producer, sorted by name: "<name> <type> <default> <valid values>", with tabs between;
// the default is "required" where there is none and "null" where that is the default.
// Run with the jars of Kafka 4.1.0:  java -cp "kafka-clients-4.1.0.jar:slf4j-api-1.7.36.jar" GoldenOptions.java > options-4.1.0.txt

import java.util.TreeMap;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.ConfigKey;

public class GoldenOptions {
    public static void main(String[] arguments) {
        for (ConfigKey key : new TreeMap<>(ProducerConfig.configDef().configKeys()).values()) {
            String value = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "required";
            String valid = key.validator == null ? "" : key.validator.toString();
            System.out.println(String.join("\t", key.name, key.type.name(), value == null ? "null" : value, valid));
        }
    }
}
