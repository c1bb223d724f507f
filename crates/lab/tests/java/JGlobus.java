// A client made of jglobus: stores a file and reads it back, once for each setting and all at the same time.
//
//   java -cp JARS JGlobus.java PORT LOCAL SETTING...
//
// Each setting is MODE:DCAU:PROT:CHANNELS, such as E:A:P:3, and the name of its file at the server; what comes back is LOCAL
// followed by the setting. The proxy is X509_USER_PROXY.

import java.io.File;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.globus.ftp.DataChannelAuthentication;
import org.globus.ftp.GridFTPClient;
import org.globus.ftp.GridFTPSession;
import org.globus.ftp.RetrieveOptions;
import org.globus.gsi.X509Credential;
import org.globus.gsi.gssapi.GlobusGSSCredentialImpl;
import org.globus.gsi.gssapi.auth.HostAuthorization;
import org.ietf.jgss.GSSCredential;

public class JGlobus {
    static int port;
    static String local;
    static GSSCredential credential;

    public static void main(String[] arguments) throws Exception {
        port = Integer.parseInt(arguments[0]);
        local = arguments[1];
        X509Credential proxy = new X509Credential(System.getenv("X509_USER_PROXY"));
        credential = new GlobusGSSCredentialImpl(proxy, GSSCredential.INITIATE_ONLY);
        ExecutorService threads = Executors.newCachedThreadPool();
        Map<String, Future<?>> copies = new LinkedHashMap<>();
        for (int i = 2; i < arguments.length; i++) {
            String setting = arguments[i];
            copies.put(setting, threads.submit(() -> {
                copy(setting);
                return null;
            }));
        }
        for (Map.Entry<String, Future<?>> copy : copies.entrySet()) {
            try {
                copy.getValue().get();
            } catch (Exception error) {
                throw new Exception(copy.getKey(), error);
            }
        }
        // The library's own threads would go on.
        System.exit(0);
    }

    static void copy(String setting) throws Exception {
        String[] parts = setting.split(":");
        String mode = parts[0];
        String remote = "/" + setting;
        GridFTPClient client = logIn(parts, mode);
        client.setPassive();
        client.setLocalActive();
        client.put(new File(local), remote, false);
        client.close();
        // Whoever sends connects in MODE E, and the library cannot be connected to where that takes a handshake.
        mode = parts[1].equals("N") ? mode : "S";
        client = logIn(parts, mode);
        if (mode.equals("E")) {
            client.setLocalPassive();
            client.setActive();
        } else {
            client.setPassive();
            client.setLocalActive();
        }
        client.get(remote, new File(local + setting));
        client.close();
    }

    static GridFTPClient logIn(String[] setting, String mode) throws Exception {
        GridFTPClient client = new GridFTPClient("localhost", port);
        client.setAuthorization(HostAuthorization.getInstance());
        client.authenticate(credential);
        client.setType(GridFTPSession.TYPE_IMAGE);
        client.setMode(mode.equals("E") ? GridFTPSession.MODE_EBLOCK : GridFTPSession.MODE_STREAM);
        if (setting[1].equals("N")) {
            client.setDataChannelAuthentication(DataChannelAuthentication.NONE);
        } else {
            client.setDataChannelAuthentication(DataChannelAuthentication.SELF);
            client.setProtectionBufferSize(16384);
            client.setDataChannelProtection(
                switch (setting[2]) {
                    case "S" -> GridFTPSession.PROTECTION_SAFE;
                    case "P" -> GridFTPSession.PROTECTION_PRIVATE;
                    default -> GridFTPSession.PROTECTION_CLEAR;
                });
        }
        if (mode.equals("E")) {
            client.setOptions(new RetrieveOptions(Integer.parseInt(setting[3])));
        }
        return client;
    }
}
