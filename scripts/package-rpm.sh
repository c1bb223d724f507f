#!/bin/sh
# Makes RPM packages for Enterprise Linux 8 and 9 and their relatives.
#
#   scripts/package-rpm.sh --target x86_64|aarch64 [--out DIR]
#       build for that processor and C library 2.28 in release mode, then pack into DIR (target/rpm)
#   scripts/package-rpm.sh --binaries DIR [--target x86_64|aarch64] [--libc VERSION] [--out DIR]
#       pack the programs that lie in DIR, whatever they were built as; godwit-dist must run here
#
# Building needs the Rust target (rustup target add TARGET-unknown-linux-gnu), and zig and
# cargo-zigbuild (pip install ziglang cargo-zigbuild), which link against the symbols of that C
# library whatever this system has. OpenSSL is compiled in. PROFILE=dev builds faster, for a trial.
set -eu

cd "$(dirname "$0")/.."
out=target/rpm
binaries=
processor=$(uname -m)
libc_max=
while [ $# -gt 0 ]; do
    case $1 in
    --out) out=$2; shift 2 ;;
    --binaries) binaries=$2; shift 2 ;;
    --target) processor=$2; shift 2 ;;
    --libc) libc_max=$2; shift 2 ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done

say() {
    echo "package-rpm: $*"
}

for tool in rpmbuild objdump; do
    command -v "$tool" >/dev/null || {
        say "$tool is missing: install rpm and binutils" >&2
        exit 4
    }
done
. scripts/staging.sh

if [ -z "$binaries" ]; then
    profile=${PROFILE:-release}
    # Of Enterprise Linux 8; 9 has 2.34.
    libc_max=${libc_max:-2.28}
    target=$processor-unknown-linux-gnu
    folder=${CARGO_TARGET_DIR:-target}
    # Programs for another processor cannot be stripped by this system's strip.
    CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_DEV_STRIP=symbols \
        ${CARGO:-cargo} zigbuild --locked --profile "$profile" --target "$target.$libc_max" \
        -p godwit-client -p godwit-server -p godwit-service -p godwit-lab --bins --features openssl/vendored
    ${CARGO:-cargo} build --locked --profile "$profile" -p godwit-dist
    case $profile in
    dev) profile=debug ;;
    esac
    binaries=$folder/$target/$profile
    dist=$folder/$profile/godwit-dist
    stripped=yes
else
    dist=$binaries/godwit-dist
    # Quick rather than small.
    payload=w1.gzdio
    [ "$processor" = "$(uname -m)" ] || stripped=yes
fi

mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

write_share "$dist" "$work/share"
staged="$work/staged"
stage "$staged" "$binaries" /usr "$work/share"
install -d "$staged/usr/lib/systemd/system"
for unit in $units; do
    install -m 644 "packaging/$unit" "$staged/usr/lib/systemd/system/"
done
write_copyright "$staged"

files=$(for program in $programs; do echo "$staged/usr/bin/$program"; done)
# shellcheck disable=SC2086 # one word a file is meant
needed=$(needed_libraries $files) libc=$(needed_libc $files)
if [ -n "$libc_max" ]; then
    newest=$(printf '%s\n' "GLIBC_$libc_max" "$libc" | sort -V | tail -n 1)
    if [ "$newest" != "GLIBC_$libc_max" ] || echo "$needed" | grep -q libssl; then
        say "the programs were to hold OpenSSL and need GLIBC_$libc_max at most; they need $needed, $libc" >&2
        exit 4
    fi
fi

# Files of each package; settings of an administrator stay over an upgrade.
mkdir -p "$work/lists"
for package in $packages; do
    : >"$work/lists/$package"
done
(cd "$staged" && find . -type f) | sed 's|^\.||' | sort | while read -r file; do
    case $file in
    /etc/*) kind='%config(noreplace) ' ;;
    /usr/share/man/*) kind='%doc ' ;;
    *) kind= ;;
    esac
    echo "$kind$file" >>"$work/lists/$(part_of "$file")"
done

# Directories go with the last package that has something in them.
for package in godwit godwit-service godwit-agent; do
    echo "%dir /etc/godwit" >>"$work/lists/$package"
done
for package in $packages; do
    (cd "$staged" && find "./usr/share/doc/$package" -type d) | sed 's|^\.|%dir |' >>"$work/lists/$package"
done

rpmbuild --quiet -bb --target "$processor-linux" \
    --define "_topdir $work/rpm" --define "_rpmdir $out" --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
    --define "godwit_version $version" --define "staged $staged" --define "lists $work/lists" \
    --define "_source_filedigest_algorithm 8" --define "_binary_filedigest_algorithm 8" \
    --define "_binary_payload ${payload:-w6.xzdio}" --define "use_source_date_epoch_as_buildtime 1" \
    --define "clamp_mtime_to_source_date_epoch 1" --define "_buildhost godwit" \
    packaging/rpm/godwit.spec
say "$out has packages for $processor; their programs need $needed, $libc"
