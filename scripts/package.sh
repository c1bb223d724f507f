#!/bin/sh
# Makes Debian packages and a tarball of the programs, with all that belongs to them.
#
#   scripts/package.sh [--out DIR]                    build in release mode, then pack into DIR (target/package)
#   scripts/package.sh --binaries DIR [--out DIR]     pack the programs that lie in DIR, whatever they were built as
#
# The packages are for the release of Debian that this runs on: what they depend on is what their programs were linked with here. The
# programs of the tarball bring OpenSSL with them (unless --binaries says otherwise) and need the C library and libgcc alone.
set -eu

cd "$(dirname "$0")/.."
out=target/package
binaries=
while [ $# -gt 0 ]; do
    case $1 in
    --out) out=$2; shift 2 ;;
    --binaries) binaries=$2; shift 2 ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done

say() {
    echo "package: $*"
}

for tool in dpkg-deb dpkg-shlibdeps strip objdump; do
    command -v "$tool" >/dev/null || {
        say "$tool is missing: install dpkg-dev and binutils" >&2
        exit 4
    }
done

. scripts/staging.sh
architecture=$(dpkg --print-architecture)

if [ -n "$binaries" ]; then
    dynamic=$binaries
    static=$binaries
else
    target=${CARGO_TARGET_DIR:-target}
    ${CARGO:-cargo} build --locked --release --workspace --bins
    # Left to find OpenSSL by itself, openssl-sys takes what lies below /usr as shared libraries all the same.
    OPENSSL_STATIC=1 OPENSSL_LIB_DIR=$(pkg-config --variable=libdir openssl) \
        OPENSSL_INCLUDE_DIR=$(pkg-config --variable=includedir openssl) ${CARGO:-cargo} build --locked --release --target-dir "$target/static" \
        -p godwit-client -p godwit-server -p godwit-service -p godwit-lab --bins
    dynamic=$target/release
    static=$target/static/release
fi

mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

write_share "$dynamic/godwit-dist" "$work/share"

all="$work/all"
stage "$all" "$dynamic" /usr "$work/share"
install -d "$all/lib/systemd/system"
for unit in $units; do
    install -m 644 "packaging/$unit" "$all/lib/systemd/system/"
done
write_copyright "$all"
(cd "$all" && find . -type f) | sed 's|^\.||' | sort >"$work/files"
while read -r file; do
    tree="$work/debian/$(part_of "$file")"
    install -d "$tree$(dirname "$file")"
    mv "$all$file" "$tree$file"
done <"$work/files"
# So that dpkg-shlibdeps takes the folder for a source package.
printf 'Source: godwit\n\nPackage: godwit\nArchitecture: any\n' >"$work/debian/control"

# What the programs of package $1 were linked with, as packages of this system.
linked_with() {
    (cd "$work" && dpkg-shlibdeps -O debian/"$1"/usr/bin/* | sed -n 's/^shlibs:Depends=//p')
}

# The maintainer's scripts of package $1, whose units are $2 and whose state is in $3.
scripts_of() {
    for script in postinst prerm postrm; do
        sed -e "s|@UNITS@|$2|" -e "s|@STATE@|$3|" "packaging/debian/$script" >"$work/debian/$1/DEBIAN/$script"
        chmod 755 "$work/debian/$1/DEBIAN/$script"
    done
}

# Packs package $1 with the fields of standard input.
pack() {
    tree="$work/debian/$1"
    install -d "$tree/DEBIAN"
    {
        echo "Package: $1"
        echo "Version: $version"
        echo "Architecture: $architecture"
        echo "Maintainer: The godwit developers <godwit@example.org>"
        echo "Installed-Size: $(du -sk "$tree" | cut -f1)"
        echo "Section: net"
        echo "Priority: optional"
        cat
    } >"$tree/DEBIAN/control"
    if [ -d "$tree/etc" ]; then
        (cd "$tree" && find etc -type f -printf '/%p\n' | sort) >"$tree/DEBIAN/conffiles"
    fi
    dpkg-deb --root-owner-group --build "$tree" "$out/$1_${version}_$architecture.deb" >/dev/null
    say "$out/$1_${version}_$architecture.deb needs $(sed -n 's/^Depends: //p' "$tree/DEBIAN/control")"
}

install -d "$work/debian/godwit/DEBIAN" "$work/debian/godwit-service/DEBIAN" "$work/debian/godwit-agent/DEBIAN"
scripts_of godwit "godwitd.service godwitd-node.service" ""
scripts_of godwit-service godwit-service.service ""
scripts_of godwit-agent godwit-agent.service godwit-agent
# The socket goes first, or a client would start the server again.
sed -i 's/systemctl stop godwitd/systemctl stop godwitd.socket godwitd/' "$work/debian/godwit/DEBIAN/prerm"
pack godwit <<CONTROL
Depends: $(linked_with godwit)
Suggests: ca-certificates, openssh-client, godwit-service, godwit-agent
Description: GridFTP client, server and lab
 Moves large data over long fat networks: godwit copies and compares files
 and trees, tunes itself while data flows and verifies every file; godwitd
 serves them, with grid identities, TLS, passwords, tokens or ssh;
 godwit-lab emulates networks and measures. They work with the servers and
 clients of the Grid Community Toolkit.
CONTROL
pack godwit-service-common <<CONTROL
Depends: $(linked_with godwit-service-common)
Suggests: ca-certificates
Description: program of the transfer service and its agents
 godwit-service queues transfers of many users and has agents do them. This
 package has the program and its manuals; godwit-service and godwit-agent
 have the units that start it.
CONTROL
pack godwit-service <<CONTROL
Depends: godwit-service-common (= $version)
Suggests: postgresql, godwit
Description: transfer service: queue, scheduler and API
 The unit and the settings of a process that serves users and agents. It is
 installed, not started: database, keys and certificate come first.
CONTROL
pack godwit-agent <<CONTROL
Depends: godwit-service-common (= $version)
Suggests: ca-certificates
Description: agent of a transfer service, for data movers
 The unit and the flags of an agent, which asks the service for work and
 does it. It is installed, not started: its token comes first.
CONTROL

name="godwit-$version-$(uname -m)-linux"
tree="$work/$name"
stage "$tree" "$static" "" "$work/share"
install -d "$tree/lib/systemd/system"
for unit in $units; do
    sed 's|/usr/bin/godwit|/usr/local/bin/godwit|' packaging/$unit >"$tree/lib/systemd/system/$unit"
done
install -m 644 LICENSE "$tree/"
files=$(for program in $programs; do echo "$tree/bin/$program"; done)
# shellcheck disable=SC2086 # one word a file is meant
needed=$(needed_libraries $files) libc=$(needed_libc $files)
if [ -z "$binaries" ] && echo "$needed" | grep -q libssl; then
    say "the programs of the tarball were to hold OpenSSL, and need $needed" >&2
    exit 4
fi
cat >"$tree/README" <<README
godwit $version for Linux ($(uname -m)), $libc or newer. The programs need these libraries of the system and no others:
$needed

    sudo cp -R bin share lib /usr/local/
    sudo cp -Rn etc /

Whom FTP over TLS believes is looked for where Debian has it (/usr/lib/ssl); elsewhere set SSL_CERT_DIR, or use --ca.
Where OpenSSL is not among the libraries above it is inside: then a new version of it is a new version of these programs.
README
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" -czf "$out/$name.tar.gz" "$name"
say "$out/$name.tar.gz needs $needed, $libc"
