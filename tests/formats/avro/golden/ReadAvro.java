import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;

/**
 * Reads lines of a schema and a value, both in base64, and prints the value as Java would write it, and as text.
 * The schema "-" is that of the line before.
 * A value that is followed by more bytes ends the program with an error.
 */
public class ReadAvro {
    public static void main(String[] arguments) throws Exception {
        GenericData plain = new GenericData();
        plain.setFastReaderEnabled(false); // the fast reader does not keep the order of a map
        GenericData logical = new GenericData();
        logical.addLogicalTypeConversion(new Conversions.DecimalConversion());
        logical.addLogicalTypeConversion(new Conversions.UUIDConversion());
        logical.addLogicalTypeConversion(new TimeConversions.DateConversion());
        logical.addLogicalTypeConversion(new TimeConversions.TimeMillisConversion());
        logical.addLogicalTypeConversion(new TimeConversions.TimeMicrosConversion());
        logical.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
        logical.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
        logical.addLogicalTypeConversion(new TimeConversions.TimestampNanosConversion());
        logical.addLogicalTypeConversion(new TimeConversions.LocalTimestampMillisConversion());
        logical.addLogicalTypeConversion(new TimeConversions.LocalTimestampMicrosConversion());
        logical.addLogicalTypeConversion(new TimeConversions.LocalTimestampNanosConversion());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers = new PrintStream(new BufferedOutputStream(System.out));
        Schema schema = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (!words[0].equals("-")) {
                schema = new Schema.Parser().parse(new String(decoded(words[0]), StandardCharsets.UTF_8));
            }
            byte[] value = decoded(words[1].substring(1));
            Object found = read(plain, schema, value);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
            new GenericDatumWriter<Object>(schema, plain).write(found, encoder);
            encoder.flush();
            String text = String.valueOf(read(logical, schema, value));
            answers.println("=" + encoded(out.toByteArray()) + " " + encoded(text.getBytes(StandardCharsets.UTF_8)));
        }
        answers.flush();
    }

    private static Object read(GenericData data, Schema schema, byte[] value) throws Exception {
        GenericDatumReader<Object> reader = new GenericDatumReader<Object>(schema, schema, data) {
            @Override
            protected Object newMap(Object old, int size) {
                Map<Object, Object> inOrder = new LinkedHashMap<>();
                return inOrder;
            }
        };
        BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(value, null);
        Object found = reader.read(null, decoder);
        if (!decoder.isEnd()) throw new IllegalStateException("bytes are left over");
        return found;
    }

    private static byte[] decoded(String text) {
        return Base64.getDecoder().decode(text);
    }

    private static String encoded(byte[] data) {
        return Base64.getEncoder().encodeToString(data);
    }
}
