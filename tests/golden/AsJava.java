// Reads lines "<what> <Base64 of UTF-8>" from stdin and prints for each what Java makes of the text: "error", or pairs of
// Base64 with a colon between, sorted, with blanks between. what: jaas (Kafka's parser of sasl.jaas.config) or properties.
// Run with the jars of Kafka 4.1.0:  java -cp "kafka-clients-4.1.0.jar:slf4j-api-1.7.36.jar" AsJava.java

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

public class AsJava {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", 2);
            String text = new String(Base64.getDecoder().decode(parts[1]), StandardCharsets.UTF_8);
            System.out.println(parts[0].equals("jaas") ? jaas(text) : properties(text));
        }
    }

    private static String jaas(String text) {
        try {
            JaasContext context = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(text)));
            AppConfigurationEntry entry = context.configurationEntries().get(0);
            Map<String, String> found = new TreeMap<>();
            entry.getOptions().forEach((name, value) -> found.put(name, (String) value));
            found.put("", entry.getLoginModuleName());
            return shown(found);
        } catch (RuntimeException error) {
            return "error";
        }
    }

    private static String properties(String text) throws Exception {
        try {
            Properties properties = new Properties();
            properties.load(new StringReader(text));
            Map<String, String> found = new TreeMap<>();
            properties.forEach((name, value) -> found.put((String) name, (String) value));
            return shown(found);
        } catch (IllegalArgumentException error) {
            return "error";
        }
    }

    private static String shown(Map<String, String> found) {
        return found.entrySet().stream()
            .map(entry -> encoded(entry.getKey()) + ":" + encoded(entry.getValue()))
            .collect(Collectors.joining(" "));
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
