# Logs in as it is told, and runs a line in which `f` is the session.
import ftplib, io, ssl, sys

login, password, host, port, authority, line = sys.argv[1:]
if login == "tls":
    f = ftplib.FTP_TLS(context=ssl.create_default_context(cafile=authority), timeout=20)
else:
    f = ftplib.FTP(timeout=20)
f.connect(host, int(port))
f.login(*([] if login == "anonymous" else ["jo", password]))
if login == "tls":
    f.prot_p()


def get(path, to, rest=None, mode="wb"):
    with open(to, mode) as file:
        f.retrbinary("RETR " + path, file.write, rest=rest)


def put(path, source, rest=None):
    with open(source, "rb") as file:
        file.seek(rest or 0)
        f.storbinary("STOR " + path, file, rest=rest)


def part(path, to, start, length):
    # Of what it is sent it keeps what it wants.
    f.voidcmd("TYPE I")
    connection = f.transfercmd("RETR " + path, rest=start)
    with open(to, "wb") as file, connection.makefile("rb") as data:
        file.write(data.read(length))
    connection.close()
    f.close()
    sys.exit()


def between(path, host, port, other, to_other):
    # One server is told where the other listens.
    g = ftplib.FTP(timeout=20)
    g.connect(host, int(port))
    g.login()
    sender, sent, receiver, received = (f, path, g, other) if to_other else (g, other, f, path)
    for session in (sender, receiver):
        session.voidcmd("TYPE I")
    reply = receiver.sendcmd("PASV")
    sender.sendcmd("PORT " + reply[reply.index("(") + 1 : reply.index(")")])
    # Servers may answer when they are connected.
    receiver.putcmd("STOR " + received)
    sender.putcmd("RETR " + sent)
    for session in (sender, receiver):
        session.getresp()
        session.voidresp()


exec(line)
f.quit()
