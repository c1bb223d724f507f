// A client made of jglobus that does one thing to one file.
//
//   java -cp JARS:CLASSES Compatibility LOGIN PORT OPERATION REMOTE [LOCAL | HOST:PORT OTHER]
//
// LOGIN is anonymous, password (of jo) or grid, by the proxy X509_USER_PROXY.

import java.io.File;
import java.io.FileOutputStream;
import java.io.RandomAccessFile;
import java.util.Vector;
import org.globus.ftp.ByteRangeList;
import org.globus.ftp.ChecksumAlgorithm;
import org.globus.ftp.DataChannelAuthentication;
import org.globus.ftp.DataSink;
import org.globus.ftp.DataSinkStream;
import org.globus.ftp.FTPClient;
import org.globus.ftp.FileInfo;
import org.globus.ftp.FileRandomIO;
import org.globus.ftp.GridFTPClient;
import org.globus.ftp.GridFTPRestartMarker;
import org.globus.ftp.GridFTPSession;
import org.globus.ftp.MlsxEntry;
import org.globus.ftp.RetrieveOptions;
import org.globus.ftp.Session;
import org.globus.ftp.StreamModeRestartMarker;
import org.globus.gsi.X509Credential;
import org.globus.gsi.gssapi.GlobusGSSCredentialImpl;
import org.globus.gsi.gssapi.auth.HostAuthorization;
import org.ietf.jgss.GSSCredential;

public class Compatibility {
    public static void main(String[] words) throws Exception {
        try {
            run(words);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
        // The library's own threads would go on.
        System.exit(0);
    }

    static void run(String[] words) throws Exception {
        int port = Integer.parseInt(words[1]);
        String remote = words[3];
        if (!words[0].equals("grid")) {
            FTPClient client = new FTPClient("localhost", port);
            String user = words[0].equals("password") ? "jo" : "anonymous";
            client.authorize(user, "sesame");
            client.setType(Session.TYPE_IMAGE);
            client.setPassive();
            client.setLocalActive();
            client.get(remote, new File(words[4]));
            return;
        }
        GridFTPClient client = logIn("localhost", port);
        switch (words[2]) {
            case "list", "facts" -> {
                client.changeDir(remote);
                client.setPassive();
                client.setLocalActive();
                Vector<?> entries = words[2].equals("list") ? client.nlist() : client.mlsd();
                for (Object entry : entries) {
                    System.out.println(words[2].equals("list") ? ((FileInfo) entry).getName() : ((MlsxEntry) entry).toString());
                }
            }
            case "get", "private" -> {
                if (words[2].equals("private")) {
                    client.setDataChannelAuthentication(DataChannelAuthentication.SELF);
                    client.setProtectionBufferSize(16384);
                    client.setDataChannelProtection(GridFTPSession.PROTECTION_PRIVATE);
                }
                client.setPassive();
                client.setLocalActive();
                client.get(remote, new File(words[4]));
            }
            case "put" -> {
                client.setPassive();
                client.setLocalActive();
                client.put(new File(words[4]), remote, false);
            }
            case "part" -> {
                client.setMode(GridFTPSession.MODE_EBLOCK);
                client.setLocalPassive();
                client.setActive();
                DataSink sink = new FileRandomIO(new RandomAccessFile(words[4], "rw"));
                client.extendedGet(remote, 100_000, 50_000, sink, null);
                sink.close();
            }
            case "resume-get" -> {
                client.setRestartMarker(new StreamModeRestartMarker(100_000));
                client.setPassive();
                client.setLocalActive();
                client.get(remote, new DataSinkStream(new FileOutputStream(words[4], true)), null);
            }
            case "resume-put" -> {
                client.setRestartMarker(new StreamModeRestartMarker(100_000));
                client.setPassive();
                client.setLocalActive();
                RandomAccessFile file = new RandomAccessFile(words[4], "r");
                file.seek(100_000);
                client.put(remote, new FileRandomIO(file), null);
            }
            case "several-get", "several-put" -> {
                client.setMode(GridFTPSession.MODE_EBLOCK);
                client.setOptions(new RetrieveOptions(4));
                if (words[2].equals("several-get")) {
                    client.setLocalPassive();
                    client.setActive();
                    DataSink sink = new FileRandomIO(new RandomAccessFile(words[4], "rw"));
                    client.get(remote, sink, null);
                    sink.close();
                } else {
                    client.setPassive();
                    client.setLocalActive();
                    client.put(remote, new FileRandomIO(new RandomAccessFile(words[4], "r")), null);
                }
            }
            case "delete" -> client.deleteFile(remote);
            case "make" -> client.makeDir(remote);
            case "rename" -> client.rename(remote, words[4]);
            case "permissions" -> client.site("CHMOD 600 " + remote);
            case "checksum" -> System.out.println(client.checksum(ChecksumAlgorithm.MD5, 0, -1, remote));
            case "from", "to" -> {
                String[] host = words[4].split(":");
                GridFTPClient other = logIn(host[0], Integer.parseInt(host[1]));
                if (words[2].equals("from")) {
                    client.transfer(remote, other, words[5], false, null);
                } else {
                    other.transfer(words[5], client, remote, false, null);
                }
            }
            default -> throw new Exception("no such operation");
        }
    }

    static GridFTPClient logIn(String host, int port) throws Exception {
        X509Credential proxy = new X509Credential(System.getenv("X509_USER_PROXY"));
        GSSCredential credential = new GlobusGSSCredentialImpl(proxy, GSSCredential.INITIATE_ONLY);
        GridFTPClient client = new GridFTPClient(host, port);
        client.setAuthorization(HostAuthorization.getInstance());
        client.authenticate(credential);
        client.setType(GridFTPSession.TYPE_IMAGE);
        client.setDataChannelAuthentication(DataChannelAuthentication.NONE);
        return client;
    }
}
