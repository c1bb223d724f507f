"""A server of pyftpdlib: python3 - ADDRESS PORT ROOT CERTIFICATE KEY SESSIONS PERMISSIONS."""

import sys
import warnings

warnings.filterwarnings("ignore")

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import TLS_FTPHandler
from pyftpdlib.servers import FTPServer

address, port, root, certificate, key, sessions, permissions = sys.argv[1:]


class Handler(TLS_FTPHandler):
    """Sessions in clear and over TLS, of a user who has these permissions below the root."""

    certfile = certificate
    keyfile = key
    authorizer = DummyAuthorizer()


Handler.authorizer.add_user("jo", "sesame", root, perm=permissions)
server = FTPServer((address, int(port)), Handler)
server.max_cons = int(sessions)
server.serve_forever()
