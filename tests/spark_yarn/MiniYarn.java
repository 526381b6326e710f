import java.io.FileOutputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * A resource manager and a node manager in one process, until stdin ends.
 *
 * Arguments: the folder for the files of HADOOP_CONF_DIR, then settings as NAME=VALUE. The last file is "ready".
 */
public class MiniYarn {
    public static void main(String[] arguments) throws Exception {
        Path clientFiles = Path.of(arguments[0]);
        YarnConfiguration conf = new YarnConfiguration();
        for (int i = 1; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            conf.set(setting[0], setting[1]);
        }
        MiniYARNCluster cluster = new MiniYARNCluster("yarn", 1, 1, 1);
        cluster.init(conf);
        cluster.start();
        if (!cluster.waitForNodeManagersToConnect(60_000)) {
            throw new IllegalStateException("the node manager did not register");
        }
        // The cluster has chosen its ports.
        for (String name : new String[] {"core-site.xml", "yarn-site.xml"}) {
            try (OutputStream file = new FileOutputStream(clientFiles.resolve(name).toFile())) {
                cluster.getConfig().writeXml(file);
            }
        }
        Files.createFile(clientFiles.resolve("ready"));
        while (System.in.read() >= 0) {}
        cluster.stop();
        System.exit(0);
    }
}
