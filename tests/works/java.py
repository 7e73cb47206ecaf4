"""OpenJDK as a client of nginx, blocking and with a selector; and as a server for curl."""

import shim
import nginx
from matrix import blob, digest, entry

CLIENT = r"""
import java.io.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.*;

public class Client {
    static String hex(byte[] digest) {
        StringBuilder text = new StringBuilder();
        for (byte b : digest)
            text.append(String.format("%02x", b));
        return text.toString();
    }

    static String fetch(String url) throws Exception {
        HttpURLConnection connection = (HttpURLConnection) new URL(url).openConnection();
        MessageDigest whole = MessageDigest.getInstance("SHA-256");
        try (InputStream in = connection.getInputStream()) {
            byte[] buffer = new byte[100000];
            for (int n; (n = in.read(buffer)) > 0;)
                whole.update(buffer, 0, n);
        }
        return hex(whole.digest());
    }

    // Eight channels in one selector fetch the file at once.
    static Set<String> select(int port, String path) throws Exception {
        Selector selector = Selector.open();
        Map<SelectionKey, ByteArrayOutputStream> got = new HashMap<>();
        String text = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        byte[] request = text.getBytes(StandardCharsets.US_ASCII);
        for (int n = 0; n < 8; n++) {
            SocketChannel channel = SocketChannel.open();
            channel.configureBlocking(false);
            channel.connect(new InetSocketAddress("127.0.0.1", port));
            got.put(channel.register(selector, SelectionKey.OP_CONNECT), new ByteArrayOutputStream());
        }
        Set<String> digests = new TreeSet<>();
        ByteBuffer buffer = ByteBuffer.allocateDirect(65536);
        for (int open = 8; open > 0;) {
            selector.select();
            for (Iterator<SelectionKey> it = selector.selectedKeys().iterator(); it.hasNext();) {
                SelectionKey key = it.next();
                it.remove();
                SocketChannel channel = (SocketChannel) key.channel();
                if (key.isConnectable()) {
                    channel.finishConnect();
                    channel.write(ByteBuffer.wrap(request));
                    key.interestOps(SelectionKey.OP_READ);
                    continue;
                }
                buffer.clear();
                int n = channel.read(buffer);
                if (n >= 0) {
                    got.get(key).write(buffer.array(), buffer.arrayOffset(), n);
                    continue;
                }
                channel.close();
                open--;
                String whole = got.get(key).toString(StandardCharsets.ISO_8859_1);
                byte[] body = whole.substring(whole.indexOf("\r\n\r\n") + 4).getBytes(StandardCharsets.ISO_8859_1);
                digests.add(hex(MessageDigest.getInstance("SHA-256").digest(body)));
            }
        }
        return digests;
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[0]);
        String url = "http://127.0.0.1:" + port;
        Set<String> small = new TreeSet<>();
        for (int n = 0; n < 200; n++)
            small.add(fetch(url + "/small"));
        System.out.println(String.join(" ", small));
        System.out.println(fetch(url + "/big"));
        System.out.println(String.join(" ", select(port, "/middle")));
    }
}
""".replace("allocateDirect", "allocate")

SERVER = r"""
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

public class Server {
    public static void main(String[] args) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 64);
        server.createContext("/", exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
    }
}
"""


@entry("OpenJDK", "HttpURLConnection and SocketChannel with a selector, from nginx", needs=["java", "javac", "nginx"],
       version=["java", "-version"], at_least=9)
def java_client(run):
    port, child, _ = nginx.files(run)
    middle = blob(3_000_000, 17)
    run.write("www/middle", middle)
    said = run.call("java", run.write("Client.java", CLIENT), str(port))
    run.same(said.split(), [digest(nginx.SMALL), digest(nginx.BIG), digest(middle)], "digests of all that was fetched")
    run.stop(child, number=3)
    return "checksums of 209 answers equal"


@entry("OpenJDK", "its HttpServer with 8 threads, curl posting 20 MB", needs=["java", "javac"],
       version=["java", "-version"],
       at_least=6)
def java_server(run):
    port = shim.free_port()
    child = run.serve(port, "java", run.write("Server.java", SERVER), str(port))
    data = blob(20_000_000, 18)
    body = run.write("body", data)
    for _ in range(3):
        run.same(digest(run.curl("http://127.0.0.1:%d/" % port, "--data-binary", "@" + body)), digest(data),
                 "what came back")
    for _ in range(3):
        run.same(run.curl("http://127.0.0.1:%d/" % port, "--data-binary", "a=b"), b"a=b", "what came back")
    run.stop(child, status=143)
    return "checksums equal"
