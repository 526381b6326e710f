// Prints what Java's generated classes write; tests/protocol/filling.py fills the same messages by the same rules.
// Run with the jars of Kafka 4.1.0 (those of tests/kafka/pom.xml) in LIBS:
//   java -cp "LIBS/*" GoldenMessages.java messages > messages-4.1.0.txt    header and body of every stable version of the APIs
//   java -cp "LIBS/*" GoldenMessages.java records > records-4.1.0.txt      keys and values of the internal topics, and markers
// messages-4.4.0.txt has what only Kafka 4.4.0 writes: version 5 of ApiVersions.
// A line is "<name> <version> <kind> <filling> <hex>". Filling "full": every field has a value of its own, arrays have two elements,
// arrays of structs one. Filling "null", only where a message can have it: null, else empty, and no tagged fields.

import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.protocol.types.*;
import org.apache.kafka.common.record.*;
import org.apache.kafka.coordinator.group.generated.*;
import org.apache.kafka.coordinator.transaction.generated.*;

public class GoldenMessages {
    static final List<ApiKeys> APIS = List.of(
        ApiKeys.PRODUCE, ApiKeys.FETCH, ApiKeys.LIST_OFFSETS, ApiKeys.METADATA, ApiKeys.OFFSET_COMMIT, ApiKeys.OFFSET_FETCH,
        ApiKeys.FIND_COORDINATOR, ApiKeys.JOIN_GROUP, ApiKeys.HEARTBEAT, ApiKeys.LEAVE_GROUP, ApiKeys.SYNC_GROUP,
        ApiKeys.DESCRIBE_GROUPS, ApiKeys.LIST_GROUPS, ApiKeys.SASL_HANDSHAKE, ApiKeys.API_VERSIONS, ApiKeys.CREATE_TOPICS,
        ApiKeys.DELETE_TOPICS, ApiKeys.DELETE_RECORDS, ApiKeys.INIT_PRODUCER_ID, ApiKeys.OFFSET_FOR_LEADER_EPOCH,
        ApiKeys.ADD_PARTITIONS_TO_TXN, ApiKeys.ADD_OFFSETS_TO_TXN, ApiKeys.END_TXN, ApiKeys.TXN_OFFSET_COMMIT,
        ApiKeys.DESCRIBE_CONFIGS, ApiKeys.ALTER_CONFIGS, ApiKeys.SASL_AUTHENTICATE, ApiKeys.CREATE_PARTITIONS,
        ApiKeys.DELETE_GROUPS, ApiKeys.INCREMENTAL_ALTER_CONFIGS, ApiKeys.OFFSET_DELETE, ApiKeys.DESCRIBE_CLUSTER,
        ApiKeys.DESCRIBE_PRODUCERS, ApiKeys.DESCRIBE_TRANSACTIONS, ApiKeys.LIST_TRANSACTIONS, ApiKeys.DESCRIBE_LOG_DIRS,
        ApiKeys.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKeys.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKeys.DESCRIBE_ACLS, ApiKeys.CREATE_ACLS, ApiKeys.DELETE_ACLS,
        ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS, ApiKeys.PUSH_TELEMETRY);

    final boolean full;
    int count = 0;
    boolean hasNull = false;

    GoldenMessages(boolean full) {
        this.full = full;
    }

    public static void main(String[] arguments) {
        if (arguments[0].equals("messages")) {
            APIS.forEach(GoldenMessages::printApi);
        } else {
            printRecords();
        }
    }

    static void printApi(ApiKeys api) {
        for (short version = api.oldestVersion(); version <= api.latestVersion(false); version++) {
            Message requestHeader = new RequestHeaderData()
                .setRequestApiKey(api.id).setRequestApiVersion(version).setCorrelationId(77).setClientId("client-ü");
            String request = hex(MessageUtil.toByteBufferAccessor(requestHeader, api.requestHeaderVersion(version)).buffer());
            Message responseHeader = new ResponseHeaderData().setCorrelationId(77);
            String response = hex(MessageUtil.toByteBufferAccessor(responseHeader, api.responseHeaderVersion(version)).buffer());
            for (boolean full : new boolean[] {true, false}) {
                ApiMessageType type = api.messageType;
                print(api.name(), version, "request", full, request, type.requestSchemas()[version], type.newRequest());
                print(api.name(), version, "response", full, response, type.responseSchemas()[version], type.newResponse());
            }
        }
    }

    static void printRecords() {
        printRecord("OffsetCommitKey", "0001", OffsetCommitKey.SCHEMAS, OffsetCommitKey::new);
        printRecord("OffsetCommitValue", null, OffsetCommitValue.SCHEMAS, OffsetCommitValue::new);
        printRecord("GroupMetadataKey", "0002", GroupMetadataKey.SCHEMAS, GroupMetadataKey::new);
        printRecord("GroupMetadataValue", null, GroupMetadataValue.SCHEMAS, GroupMetadataValue::new);
        printRecord("TransactionLogKey", "0000", TransactionLogKey.SCHEMAS, TransactionLogKey::new);
        printRecord("TransactionLogValue", null, TransactionLogValue.SCHEMAS, TransactionLogValue::new);
        for (ControlRecordType type : List.of(ControlRecordType.ABORT, ControlRecordType.COMMIT)) {
            ByteBuffer key = ByteBuffer.allocate(4);
            type.recordKey().writeTo(key);
            System.out.println(type + " 0 marker key " + hex(key.flip()));
            System.out.println(type + " 0 marker value " + hex(new EndTransactionMarker(type, 70_000).serializeValue()));
        }
    }

    static void printRecord(String name, String keyType, Schema[] schemas, java.util.function.Supplier<ApiMessage> make) {
        for (short version = 0; version < schemas.length; version++) {
            String prefix = keyType != null ? keyType : String.format("%04x", version);
            print(name, version, "record", true, prefix, schemas[version], make.get());
            print(name, version, "record", false, prefix, schemas[version], make.get());
        }
    }

    static void print(String name, short version, String kind, boolean full, String prefix, Schema schema, ApiMessage message) {
        GoldenMessages filler = new GoldenMessages(full);
        Struct filled = filler.struct(schema);
        if (!full && !filler.hasNull) return;
        ByteBuffer buffer = ByteBuffer.allocate(filled.sizeOf());
        filled.writeTo(buffer);
        message.read(new ByteBufferAccessor(buffer.flip()), version);
        String hex = hex(MessageUtil.toByteBufferAccessor(message, version).buffer());
        System.out.println(name + " " + version + " " + kind + " " + (full ? "full" : "null") + " " + prefix + hex);
    }

    static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    Struct struct(Schema schema) {
        Struct struct = new Struct(schema);
        for (BoundField field : schema.fields()) struct.set(field, value(field.def.type));
        return struct;
    }

    Object value(Type type) {
        if (type instanceof Schema schema) return struct(schema);
        if (type instanceof TaggedFields tagged) return taggedFields(tagged);
        if (!full && (type.isNullable() || type.isArray())) {
            hasNull = true;
            return type.isNullable() ? null : new Object[0];
        }
        if (type.isArray()) return array(type.arrayElementType().get());
        int n = ++count;
        return switch (type.toString()) {
            case "BOOLEAN" -> true;
            case "INT8" -> (byte) n;
            case "INT16" -> (short) (300 + n);
            case "INT32" -> 70_000 + n;
            case "INT64" -> (1L << 40) + n;
            case "UUID" -> new Uuid(n, -n);
            case "STRING", "NULLABLE_STRING", "COMPACT_STRING", "COMPACT_NULLABLE_STRING" -> "ü" + n;
            case "BYTES", "COMPACT_BYTES" -> ByteBuffer.wrap(new byte[] {(byte) n, -1});
            case "RECORDS", "COMPACT_RECORDS" -> MemoryRecords.readableRecords(ByteBuffer.wrap(new byte[] {(byte) n, -1}));
            default -> throw new IllegalArgumentException(type.toString());
        };
    }

    Object[] array(Type element) {
        return element instanceof Schema ? new Object[] {value(element)} : new Object[] {value(element), value(element)};
    }

    Map<Integer, Object> taggedFields(TaggedFields tagged) {
        Map<Integer, Object> values = new TreeMap<>();
        if (full) tagged.fields().forEach((tag, field) -> values.put(tag, value(field.type)));
        hasNull |= !full && !tagged.fields().isEmpty();
        return values;
    }
}
