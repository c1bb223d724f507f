"""A server of pyftpdlib: python3 - ADDRESS PORT ROOT CERTIFICATE KEY."""

import sys
import warnings

warnings.filterwarnings("ignore")

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import TLS_FTPHandler
from pyftpdlib.servers import FTPServer

address, port, root, certificate, key = sys.argv[1:]


class Handler(TLS_FTPHandler):
    """Sessions in clear and over TLS, of a user who may do everything below the root."""

    certfile = certificate
    keyfile = key
    authorizer = DummyAuthorizer()


Handler.authorizer.add_user("jo", "sesame", root, perm="elradfmwMT")
FTPServer((address, int(port)), Handler).serve_forever()
