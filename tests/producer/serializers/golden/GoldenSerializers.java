import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.Charset;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.common.serialization.BooleanSerializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.ByteBufferSerializer;
import org.apache.kafka.common.serialization.BytesSerializer;
import org.apache.kafka.common.serialization.DoubleSerializer;
import org.apache.kafka.common.serialization.FloatSerializer;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.apache.kafka.common.serialization.ListSerializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.ShortSerializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.serialization.UUIDSerializer;
import org.apache.kafka.common.serialization.VoidSerializer;
import org.apache.kafka.common.utils.Bytes;

/**
 * What Kafka's own serializers make of values, as text.
 *
 * <pre>
 *   java -cp "kafka-clients.jar and its dependencies" GoldenSerializers.java > bytes.txt
 * </pre>
 *
 * "value serializer encoding value bytes": bytes are hex behind an x, null is "-". Numbers are decimal, floats and doubles the
 * hex of their bits, text the hex of its UTF-16 (big endian), buffers the hex of what is before their limit.
 * "list inner encoding elements bytes": elements are values with commas between, "." is an empty list.
 * "charset name aliases digest": SHA-256 of each character up to U+FFFF and a few above, encoded one by one.
 */
public final class GoldenSerializers {
    private static final HexFormat HEX = HexFormat.of();
    private static final String NO_ENCODING = ".";
    private static final String[] ENCODINGS = {NO_ENCODING, "UTF-8", "UTF-16", "UTF-16BE", "UTF-16LE", "UTF-32", "UTF-32LE",
        "ISO-8859-1", "US-ASCII", "latin1", "UTF8"};
    private static final String[] TEXTS = {"", "a", "h\u00e9llo", "\u65e5\u672c\u8a9e", "\u20ac 5", "\u2014\u2015\uff5e", "\n",
        "\ufeffx", "\0", "\ud83d\ude00!", "\ud83d", "\ud83dx", "x\ude00", "\ude00\ud83d", "y".repeat(300)};

    public static void main(String[] args) throws Exception {
        numbers();
        blobs();
        for (String encoding : ENCODINGS)
            texts(encoding);
        lists();
        for (Charset charset : Charset.availableCharsets().values())
            if (charset.canEncode())
                System.out.printf("charset %s %s %s%n", charset.name(), String.join(",", charset.aliases()), digest(charset));
    }

    private static void numbers() {
        values("Short", new ShortSerializer(), null, (short) 0, (short) 1, (short) -1, Short.MIN_VALUE, Short.MAX_VALUE);
        values("Integer", new IntegerSerializer(), null, 0, 1, -1, 258, Integer.MIN_VALUE, Integer.MAX_VALUE);
        values("Long", new LongSerializer(), null, 0L, 1L, -1L, 1L << 40, Long.MIN_VALUE, Long.MAX_VALUE);
        values("Float", new FloatSerializer(), null, 0f, -0f, 1f, 0.1f, -1.5f, Float.MIN_VALUE, Float.MAX_VALUE, Float.NaN,
            Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY);
        values("Double", new DoubleSerializer(), null, 0d, -0d, 1d, 0.1, -1.5, Double.MIN_VALUE, Double.MAX_VALUE, Double.NaN,
            Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, Double.longBitsToDouble(0xfff8000000000123L));
        values("Boolean", new BooleanSerializer(), null, true, false);
        values("Void", new VoidSerializer(), (Void) null);
    }

    private static void blobs() {
        byte[] bytes = {0, 1, -1, 65};
        values("ByteArray", new ByteArraySerializer(), null, new byte[0], bytes);
        values("Bytes", new BytesSerializer(), null, Bytes.wrap(new byte[0]), Bytes.wrap(bytes));
        ByteBuffer part = ByteBuffer.wrap(bytes.clone());
        part.position(1).limit(3);
        ByteBuffer direct = ByteBuffer.allocateDirect(8).put(bytes).flip();
        values("ByteBuffer", new ByteBufferSerializer(), null, ByteBuffer.allocate(0), ByteBuffer.wrap(bytes), part, direct);
    }

    private static void texts(String encoding) {
        Serializer<String> strings = configured(new StringSerializer(), encoding, null);
        for (String text : TEXTS)
            value("String", encoding, strings, text);
        value("String", encoding, strings, null);
        Serializer<UUID> uuids = configured(new UUIDSerializer(), encoding, null);
        for (UUID uuid : uuids())
            value("UUID", encoding, uuids, uuid);
    }

    private static UUID[] uuids() {
        return new UUID[] {null, new UUID(0, 0), new UUID(-1, -1), new UUID(0x0123456789abcdefL, 0xfedcba9876543210L)};
    }

    private static void lists() {
        list("Short", NO_ENCODING, (short) 1, null, (short) -2);
        list("Integer", NO_ENCODING, 1, null, -2, null, 3);
        list("Long", NO_ENCODING, 1L, null, -2L);
        list("Float", NO_ENCODING, 1f, null, -2f);
        list("Double", NO_ENCODING, 1d, null, -2d);
        list("Boolean", NO_ENCODING, true, null, false);
        list("String", NO_ENCODING, "a", null, "", "h\u00e9llo");
        list("String", "UTF-16", "a", null, "", "h\u00e9llo");
        list("UUID", NO_ENCODING, uuids()[3], null, uuids()[1]);
        list("UUID", "UTF-16", uuids()[3], null, uuids()[1]);
        list("ByteArray", NO_ENCODING, new byte[] {1}, null, new byte[0]);
        list("Bytes", NO_ENCODING, Bytes.wrap(new byte[] {1}), null, Bytes.wrap(new byte[0]));
        list("ByteBuffer", NO_ENCODING, ByteBuffer.wrap(new byte[] {1}), null, ByteBuffer.allocate(0));
        list("Void", NO_ENCODING, new Object[] {null, null});
    }

    /** The list, the list without nulls, its nulls alone, an empty list and no list. */
    private static void list(String inner, String encoding, Object... elements) {
        Serializer<List<Object>> serializer = configured(new ListSerializer<>(), encoding, inner);
        List<Object> present = new ArrayList<>(Arrays.asList(elements));
        present.removeIf(element -> element == null);
        for (List<Object> list : Arrays.asList(Arrays.asList(elements), present, Arrays.asList(null, null), List.<Object>of(), null))
            System.out.printf("list %s %s %s %s%n", inner, encoding, elementsOf(list), hex(serializer.serialize("topic", list)));
    }

    private static String elementsOf(List<Object> list) {
        if (list == null)
            return "-";
        List<String> texts = new ArrayList<>();
        for (Object element : list)
            texts.add(text(element));
        return texts.isEmpty() ? "." : String.join(",", texts);
    }

    private static <T, S extends Serializer<T>> S configured(S serializer, String encoding, String inner) {
        Map<String, Object> settings = new HashMap<>();
        if (!encoding.equals(NO_ENCODING))
            settings.put("serializer.encoding", encoding);
        if (inner != null)
            settings.put("default.list.value.serde.inner", "org.apache.kafka.common.serialization.Serdes$" + inner + "Serde");
        serializer.configure(settings, false);
        return serializer;
    }

    @SafeVarargs
    private static <T> void values(String name, Serializer<T> serializer, T... values) {
        if (values == null)
            value(name, NO_ENCODING, serializer, null);
        else
            for (T value : values)
                value(name, NO_ENCODING, serializer, value);
    }

    private static <T> void value(String name, String encoding, Serializer<T> serializer, T value) {
        System.out.printf("value %s %s %s %s%n", name, encoding, text(value), hex(serializer.serialize("topic", value)));
    }

    private static String text(Object value) {
        if (value instanceof String string)
            return "x" + HEX.formatHex(utf16(string));
        if (value instanceof Float number)
            return HEX.toHexDigits(Float.floatToRawIntBits(number));
        if (value instanceof Double number)
            return HEX.toHexDigits(Double.doubleToRawLongBits(number));
        if (value instanceof byte[] bytes)
            return hex(bytes);
        if (value instanceof Bytes bytes)
            return hex(bytes.get());
        if (value instanceof ByteBuffer buffer) {
            byte[] bytes = new byte[buffer.limit()];
            buffer.duplicate().rewind().get(bytes);
            return hex(bytes);
        }
        return value == null ? "-" : value.toString();
    }

    /** UTF-16 with its lone surrogates, which no encoder of Java writes. */
    private static byte[] utf16(String string) {
        ByteBuffer units = ByteBuffer.allocate(string.length() * 2);
        for (char unit : string.toCharArray())
            units.putChar(unit);
        return units.array();
    }

    private static String digest(Charset charset) throws Exception {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (int point = 0; point < 0x10100; point++)
            if (point < 0xd800 || point > 0xf8ff)
                all.write(Character.toString(point).getBytes(charset));
        all.write(Character.toString(0x1f600).getBytes(charset));
        all.write(Character.toString(0x2000b).getBytes(charset));
        return HEX.formatHex(MessageDigest.getInstance("SHA-256").digest(all.toByteArray()));
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "-" : "x" + HEX.formatHex(bytes);
    }
}
