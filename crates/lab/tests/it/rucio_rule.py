"""One rule of Rucio from its submission to OK: submitter, poller and finisher over FTS's interface.

Arguments: a directory, the service's URL, a certificate with its key, the content of a file, then
URLs of directories of two or more storages. The file lies at all but the last, below `lab`. With
`FTS_TOKEN` and `STORAGE_TOKEN` in the environment these prove who the user is, to the service and
to the storages, in place of tokens that an issuer would give Rucio.
"""

import datetime
import logging
import os
import sys
import time
import urllib.parse
import zlib

folder, service, certificate, content, *storages = sys.argv[1:]
scheme = urllib.parse.urlparse(storages[0]).scheme
fts_token, storage_token = map(os.environ.get, ("FTS_TOKEN", "STORAGE_TOKEN"))
os.makedirs(folder + "/etc", exist_ok=True)
os.environ["RUCIO_HOME"] = folder
with open(folder + "/etc/rucio.cfg", "w") as settings:
    settings.write(f"""
[common]
logdir = {folder}
loglevel = INFO
[client]
rucio_host = http://localhost
auth_host = http://localhost
auth_type = userpass
account = root
[database]
default = sqlite:///{folder}/rucio.db
[bootstrap]
userpass_identity = root
userpass_pwd = secret
[conveyor]
scheme = {scheme}
transfertool = fts3
usercert = {certificate}
poll_timeout = 30
poller_oidc_support = {bool(fts_token)}
[policy]
permission = generic
schema = generic
[monitor]
enable_metrics = False
""")
logging.basicConfig(level=logging.INFO, stream=sys.stderr)

from rucio.common import constants
from rucio.common.types import InternalAccount, InternalScope
from rucio.core import account_limit, distance, replica, rse, rule, scope
from rucio.daemons.conveyor import finisher, poller, submitter
from rucio.db.sqla import models, util
from rucio.db.sqla.constants import DatabaseOperationType, RuleState
from rucio.db.sqla.session import db_session, get_engine
from rucio.transfertool import fts3

# The tables of today's Rucio have no GridFTP any more; those of sites that use it do.
constants.SCHEME_MAP["gsiftp"] = ["gsiftp"]
fts3.FTS3Transfertool.supported_schemes.add("gsiftp")
if fts_token:
    fts3.request_token = lambda audience, scope: fts_token if scope == "fts" else storage_token

models.register_models(get_engine())
util.create_base_vo()
util.create_root_account()
root = InternalAccount("root")
in_scope = InternalScope("lab")


def write(function, *arguments, **named):
    """Calls a function of Rucio in a transaction of its own."""
    with db_session(DatabaseOperationType.WRITE) as session:
        return function(*arguments, **named, session=session)


def add_storage(name, url):
    """A storage whose files have the names that this script gives them."""
    parts = urllib.parse.urlparse(url)
    number = write(rse.add_rse, name)
    operations = {"read": 1, "write": 1, "delete": 1, "third_party_copy_read": 1,
                  "third_party_copy_write": 1}
    write(rse.add_protocol, number, {
        "scheme": parts.scheme, "hostname": parts.hostname, "port": parts.port,
        "prefix": parts.path or "/", "impl": "rucio.rse.protocols.gfal.Default",
        "domains": {"lan": operations, "wan": operations}})
    write(rse.add_rse_attribute, number, "fts", service)
    write(rse.add_rse_attribute, number, "lfn2pfn_algorithm", "identity")
    if fts_token:
        write(rse.add_rse_attribute, number, "oidc_support", True)
    write(account_limit.set_local_account_limit, root, number, -1)
    return number


def state():
    return write(rule.get_rule, rule_id)["state"]


write(scope.add_scope, in_scope, root)
numbers = [add_storage(f"STORAGE{place}", url) for place, url in enumerate(storages)]
for source in numbers[:-1]:
    write(distance.add_distance, source, numbers[-1], distance=1)
with open(content, "rb") as file:
    data = file.read()
checksum = f"{zlib.adler32(data):08x}"
for number in numbers[:-1]:
    write(replica.add_replica, number, in_scope, "file", len(data), root, adler32=checksum)
[rule_id] = write(
    rule.add_rule, [{"scope": in_scope, "name": "file"}], root, 1,
    f"STORAGE{len(storages) - 1}", "NONE", None, None, False, None)

deadline = time.monotonic() + 90
while state() != RuleState.OK:
    if time.monotonic() > deadline:
        sys.exit(f"the rule is {state()}")
    submitter.submitter(once=True, partition_wait_time=0)
    poller.poller(once=True, older_than=0, partition_wait_time=0)
    finisher.finisher(once=True, partition_wait_time=0)
    time.sleep(0.2)
print("rule", state().name)
