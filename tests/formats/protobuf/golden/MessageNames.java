import com.squareup.wire.schema.Location;
import com.squareup.wire.schema.internal.parser.MessageElement;
import com.squareup.wire.schema.internal.parser.ProtoParser;
import com.squareup.wire.schema.internal.parser.TypeElement;
import java.util.List;

/**
 * Finds a message by its indexes as Confluent's ProtobufSchema.toMessageName does, on the parser that it uses. Confluent's own
 * class is not on Maven Central. Arguments: a schema and indexes such as 0,1, any number of times. It prints a name for each.
 */
public class MessageNames {
    public static void main(String[] args) {
        for (int i = 0; i < args.length; i += 2) {
            List<TypeElement> types = ProtoParser.Companion.parse(Location.get("schema.proto"), args[i]).getTypes();
            StringBuilder name = new StringBuilder();
            for (String index : args[i + 1].split(",")) {
                TypeElement found = messageAt(types, Integer.parseInt(index));
                name.append(name.length() == 0 ? "" : ".").append(found == null ? "?" : found.getName());
                types = found == null ? List.of() : found.getNestedTypes();
            }
            System.out.println(name);
        }
    }

    private static TypeElement messageAt(List<TypeElement> types, int index) {
        int place = 0;
        for (TypeElement type : types) {
            if (type instanceof MessageElement && place++ == index) {
                return type;
            }
        }
        return null;
    }
}
