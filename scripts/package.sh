#!/bin/sh
# Makes a Debian package and a tarball of the programs, with all that belongs to them.
#
#   scripts/package.sh [--out DIR]                    build in release mode, then pack into DIR (target/package)
#   scripts/package.sh --binaries DIR [--out DIR]     pack the programs that lie in DIR, whatever they were built as
#
# The package is for the release of Debian that this runs on: what it depends on is what its programs were linked with here. The
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

programs="godwit godwitd godwit-service godwit-lab"
units="godwitd.service godwitd.socket godwit-service.service godwit-agent.service"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
# Files are as old as what they were made from, so that who packs the same gets the same.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

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

# What both have, in a tree whose programs lie in $3/bin.
stage() {
    tree=$1 from=$2 prefix=$3
    install -d "$tree$prefix/bin" "$tree$prefix/share" "$tree/etc/godwit" "$tree/etc/logrotate.d"
    for program in $programs; do
        strip -o "$tree$prefix/bin/$program" "$from/$program"
    done
    cp -R "$work/share/." "$tree$prefix/share/"
    install -m 644 packaging/godwitd.toml packaging/service.toml packaging/agent.conf "$tree/etc/godwit/"
    install -m 644 packaging/logrotate "$tree/etc/logrotate.d/godwitd"
    install -d "$tree$prefix/share/doc/godwit/examples"
    install -m 644 packaging/sysctl.conf packaging/grafana/godwit.json packaging/prometheus/godwit.rules.yml \
        "$tree$prefix/share/doc/godwit/examples/"
}

"$dynamic/godwit-dist" "$work/share"
find "$work/share/man" -type f -exec gzip -9n {} +

deb="$work/deb"
stage "$deb" "$dynamic" /usr
install -d "$deb/lib/systemd/system" "$deb/DEBIAN"
for unit in $units; do
    install -m 644 "packaging/$unit" "$deb/lib/systemd/system/"
done
{
    echo "godwit $version, $(sed -n 's/^license = "\(.*\)"/\1/p' Cargo.toml | head -n 1). Libraries it holds: THIRD-PARTY.txt."
    echo
    cat LICENSE
} >"$deb/usr/share/doc/godwit/copyright"
# What the programs were linked with, as packages of this system.
mkdir -p "$work/debian"
printf 'Source: godwit\n\nPackage: godwit\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O deb/usr/bin/* | sed -n 's/^shlibs:Depends=//p')
cat >"$deb/DEBIAN/control" <<CONTROL
Package: godwit
Version: $version
Architecture: $architecture
Maintainer: The godwit developers <godwit@example.org>
Installed-Size: $(du -sk "$deb" | cut -f1)
Depends: $depends
Suggests: ca-certificates, openssh-client
Section: net
Priority: optional
Description: GridFTP client, server, transfer service and lab
 Moves large data over long fat networks: godwit copies and compares files
 and trees, tunes itself while data flows and verifies every file; godwitd
 serves them, with grid identities, TLS, passwords, tokens or ssh;
 godwit-service queues transfers of many users and has agents do them;
 godwit-lab emulates networks and measures. They work with the servers and
 clients of the Grid Community Toolkit.
CONTROL
(cd "$deb" && find etc -type f -printf '/%p\n' | sort) >"$deb/DEBIAN/conffiles"
install -m 755 packaging/debian/postinst packaging/debian/prerm "$deb/DEBIAN/"
package="$out/godwit_${version}_$architecture.deb"
dpkg-deb --root-owner-group --build "$deb" "$package" >/dev/null
say "$package needs $depends"

name="godwit-$version-$(uname -m)-linux"
tree="$work/$name"
stage "$tree" "$static" ""
install -d "$tree/lib/systemd/system"
for unit in $units; do
    sed 's|/usr/bin/|/usr/local/bin/|' packaging/$unit >"$tree/lib/systemd/system/$unit"
done
install -m 644 LICENSE "$tree/"
needed=$(for program in $programs; do objdump -p "$tree/bin/$program"; done | awk '$1 == "NEEDED" { print $2 }' | sort -u | xargs)
if [ -z "$binaries" ] && echo "$needed" | grep -q libssl; then
    say "the programs of the tarball were to hold OpenSSL, and need $needed" >&2
    exit 4
fi
libc=$(for program in $programs; do objdump -T "$tree/bin/$program"; done | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
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
