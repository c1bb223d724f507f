"""images.py TREE PACKAGES ROOT FOLDER: builds the images with the packages and a base made of the
file system ROOT, and runs their programs as an orchestrator would. It runs in a network that has
nothing but loopback once the images are built."""

import json
import os
import subprocess
import sys
import time

tree, packages, root, folder = sys.argv[1:]
# No daemon and no mounts: works inside another container, too.
os.environ.update(STORAGE_DRIVER="vfs", BUILDAH_ISOLATION="chroot")
TARGETS = ["godwit-service", "godwit-agent", "godwitd"]
USER = "10001:10001"


def buildah(*words, **how):
    line = ["buildah", "--root", f"{folder}/storage", "--runroot", f"{folder}/run", *words]
    return subprocess.run(line, check=True, text=True, capture_output=True, **how).stdout.strip()


def build():
    base = buildah("from", "scratch")
    buildah("add", base, root, "/")
    buildah("commit", base, "localhost/base:bookworm")
    buildah("rm", base)
    for target in TARGETS:
        buildah(
            *["bud", "--format", "docker", "--pull-never", "--target", target, "-t", target],
            *["--build-arg", "DEBIAN=localhost/base:bookworm"],
            *["--build-context", f"packages={packages}"],
            *["-f", f"{tree}/packaging/container/Containerfile", tree],
        )
        buildah("from", "--name", target, f"localhost/{target}")


def config(target):
    return json.loads(buildah("inspect", "--type", "image", target))["Docker"]["config"]


def line(target, *words):
    begin = ["buildah", "--root", f"{folder}/storage", "--runroot", f"{folder}/run", "run"]
    # What the host names is not what a container has.
    return [*begin, "--user", USER, "--env", "HOME=/var/lib/godwit", target, "--", *words]


def said(target, *words):
    ran = subprocess.run(line(target, *words), text=True, capture_output=True)
    assert ran.returncode == 0, (target, words, ran.stdout, ran.stderr)
    return ran.stdout.strip()


def healthy(target):
    kind, *words = config(target)["Healthcheck"]["Test"]
    assert kind == "CMD", "a shell that the image may lack"
    return subprocess.run(line(target, *words), capture_output=True, timeout=60).returncode == 0


def start(target, *words):
    log = open(f"{folder}/{target}.log", "wb")
    whole = line(target, *config(target)["Entrypoint"], *words)
    return subprocess.Popen(whole, stdout=log, stderr=log)


def becomes_healthy(target, process):
    for _ in range(60):
        if healthy(target):
            return
        assert process.poll() is None, open(f"{folder}/{target}.log").read()
        time.sleep(0.5)
    raise AssertionError(f"{target} is not healthy: " + open(f"{folder}/{target}.log").read())


def run():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for target in TARGETS:
        assert config(target)["User"] == USER, target
        assert not healthy(target), f"{target} is healthy before it runs"
        # The programs see no other user and no way to one.
        assert said(target, "/usr/bin/id", "-u") == "10001"
    started = []

    def begin(target, *words):
        started.append(start(target, *words))
        becomes_healthy(target, started[-1])

    try:
        begin("godwitd", "--anonymous", "rw")
        begin("godwit-service", *config("godwit-service")["Cmd"])
        said(
            "godwit-service",
            *["/usr/bin/godwit-service", "enroll", "mover1", "--to", "/tmp/token"],
            *["--database", "sqlite:/var/lib/godwit/service.db"],
        )
        token = said("godwit-service", "/bin/cat", "/tmp/token")
        said("godwit-agent", "/bin/sh", "-c", f"umask 077; echo {token} > /tmp/token")
        begin(
            "godwit-agent",
            *["agent", "--service", "http://127.0.0.1:8447", "--name", "mover1"],
            *["--token-file", "/tmp/token", "--state", "/var/lib/godwit"],
        )
        said("godwitd", "/usr/bin/godwit", "ls", "ftp://127.0.0.1:2811/")
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(timeout=60)


if os.environ.get("IMAGES_BUILT"):
    run()
else:
    build()
    again = [sys.executable, *sys.argv]
    apart = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--"]
    os.environ["IMAGES_BUILT"] = "1"
    sys.exit(subprocess.run([*apart, *again]).returncode)
