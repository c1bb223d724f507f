#!/bin/sh
# Runs a program under a Debian kernel in an emulated machine, for tests of kernel TLS where the kernel at hand has none.
#
#   scripts/run-under-kernel.sh PACKAGE PROGRAM [ARGUMENT...]
#
# PACKAGE is a kernel's, such as linux-image-cloud-amd64, of the suite SUITE (sid). The kernel is kept in the user's cache and never
# renewed: remove it from there for a newer one. The machine has PROGRAM with its libraries, modules for TLS, loopback and busybox;
# the program runs in /tmp, which is in memory. Variables that begin with GODWIT_ or RUST_ are passed on.
# The status is the program's; 2 if nothing could be run, 124 after LIMIT seconds (600), 125 if the machine died without a status.
# Every instruction is emulated, so times mean nothing there.
set -eu

[ $# -ge 2 ] || {
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
package=$1
wanted=$2
shift 2
suite=${SUITE:-sid}
limit=${LIMIT:-600}

say() {
    echo "run-under-kernel: $*" >&2
}
fail() {
    say "$@"
    exit 2
}

# Those of administrators are not in everyone's PATH.
PATH=$PATH:/usr/sbin:/sbin
for tool in qemu-system-x86_64 busybox cpio depmod modprobe xz zstd apt-get; do
    command -v "$tool" >/dev/null ||
        fail "$tool is missing: install qemu-system-x86, busybox-static, cpio, kmod, xz-utils and zstd (it needs a Debian-like system)"
done
busybox=$(command -v busybox)
# The machine has no library for one that is not static.
! ldd "$busybox" >/dev/null 2>&1 || fail "busybox is not static: install busybox-static"
program=$(command -v "$wanted") || fail "no program $wanted"
# With symbolic links kept: some programs go by the name they are called by.
program=$(realpath -s "$program")

work=$(mktemp -d)
machine=
clean_up() {
    [ -z "$machine" ] || kill "$machine" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# An apt of its own knows the one suite, so that the system's needs no change. It uses the system's mirror and checks signatures.
fetch_kernel() {
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -e "$keyring" ] || fail "Debian's keys are missing: install debian-archive-keyring"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
    mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial"
    echo "deb [arch=amd64 signed-by=$keyring] ${mirror:-http://deb.debian.org/debian} $suite main" >"$work/apt/sources.list"
    # Hooks and additional indexes of the system's are not for this one.
    cat >"$work/apt/conf" <<CONF
#clear APT::Default-Release;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear Acquire::IndexTargets::deb::DEP-11;
Acquire::Languages "none";
APT::Sandbox::User "root";
Dir::Cache "$work/apt";
Dir::Etc::preferences "-";
Dir::Etc::preferencesparts "-";
Dir::Etc::sourcelist "$work/apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$work/apt/lists";
CONF
    say "fetching $package of $suite"
    apt-get -c="$work/apt/conf" -qq -o APT::Update::Error-Mode=any update >&2 || fail "no package list of $suite"
    # Names without a version lead to one with, and of late a kernel lies in more than one package.
    parts=$(apt-cache -c="$work/apt/conf" depends --recurse --important "$package" |
        grep -E '^linux-(image|binary|modules)-[0-9]') || fail "no kernel $package in $suite"
    # shellcheck disable=SC2086 # one word a package is meant
    (cd "$work/apt" && apt-get -c="$work/apt/conf" -qq download $parts >&2) || fail "$package could not be fetched"
    mkdir -p "${kernels%/*}"
    unpacked=$(mktemp -d "$kernels.XXXXXX")
    for file in "$work"/apt/*.deb; do
        dpkg-deb -x "$file" "$unpacked"
    done
    # In one step, so that what is there is whole.
    mv -T "$unpacked" "$kernels" 2>/dev/null || rm -rf "$unpacked"
}
kernels=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/kernels/packages/$suite/$package
[ -d "$kernels" ] || fetch_kernel
kernel=$(find "$kernels" -name 'vmlinuz*' -type f | head -n 1)
modules=$(find "$kernels" -path '*/lib/modules/*/kernel' -type d | head -n 1)
[ -n "$kernel" ] && [ -n "$modules" ] || fail "no kernel, or no modules, in $kernels"
modules=${modules%/kernel}
release=${modules##*/}

root=$work/root
# As Debian has it: libraries are found whichever way they are named.
mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/usr/lib64"
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
mkdir "$root/busybox" "$root/dev" "$root/etc" "$root/modules" "$root/proc" "$root/run" "$root/sys" "$root/tmp"
echo 'root:x:0:0:root:/tmp:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
echo 'hosts: files' >"$root/etc/nsswitch.conf"
printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
# Tells where the libraries lie that are not in the usual places.
[ ! -e /etc/ld.so.cache ] || cp /etc/ld.so.cache "$root/etc/"
cp "$busybox" "$root/busybox/busybox"
ln -s /busybox/busybox "$root/bin/sh"
put() {
    mkdir -p "$root${1%/*}"
    cp -L --remove-destination "$1" "$root$1"
}
put "$program"
# It fails for static programs, which need none.
{ ldd "$program" 2>/dev/null || true; } | grep -o '/[^ ]*' | grep '\.so' | while read -r library; do
    put "$library"
done

# The modules and what they need, in the order in which they are loaded. What a kernel has built in, or has not, is left out.
[ -e "$modules/modules.dep.bin" ] || depmod -b "${modules%/lib/modules/*}" "$release"
for module in aesni_intel ghash_clmulni_intel gcm ccm chacha20poly1305 tls tcp_diag; do
    modprobe -d "${modules%/lib/modules/*}" -S "$release" --show-depends "$module" 2>/dev/null || true
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r file; do
    name=${file##*/}
    name=${name%%.*}
    case $file in
    *.xz) xz -dc "$file" ;;
    *.zst) zstd -qdc "$file" ;;
    *) cat "$file" ;;
    esac >"$root/modules/$name"
    echo "$name"
done >"$root/modules/order"

quoted() {
    printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"
}
command=$(quoted "$program")
for argument; do
    command="$command $(quoted "$argument")"
done
# The console is the first serial port, as it is for the kernel; the status goes to the second. What is written must have left a
# port before the power goes, and setting a terminal waits for that.
{
    cat <<'INIT'
#!/bin/sh
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/busybox HOME=/tmp TMPDIR=/tmp
/busybox/busybox --install -s /busybox
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
stty -opost </dev/console
ip link set lo up
hostname localhost
finish() {
    echo "$1" >/dev/ttyS1
    stty -opost </dev/console
    poweroff -f
}
while read -r name; do
    insmod "/modules/$name" 2>/dev/null || echo "run-under-kernel: module $name could not be loaded"
done </modules/order
[ -e /proc/net/tls_stat ] || {
    echo "run-under-kernel: Linux $(uname -r) has no kernel TLS, or its module could not be loaded"
    finish no-tls
}
cd /tmp
INIT
    awk 'BEGIN { for (name in ENVIRON) if (name ~ /^(GODWIT|RUST)_[A-Za-z0-9_]*$/) print name }' | while read -r name; do
        eval "value=\$$name"
        echo "export $name=$(quoted "$value")"
    done
    echo "$command </dev/null"
    echo 'finish $?'
} >"$root/init"
chmod 755 "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) >"$work/initramfs"

# Without a display rather than -nographic, with which the firmware clears the screen. It is not waited for in the foreground, so
# that it ends when this does.
timeout "$limit" qemu-system-x86_64 -accel tcg -cpu max -smp 2 -m 2G -no-reboot -nodefaults -display none -monitor none \
    -serial stdio -serial "file:$work/status" \
    -kernel "$kernel" -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1" </dev/null &
machine=$!
ended=0
wait "$machine" || ended=$?
machine=
status=$(tr -d '\r\n' <"$work/status") || status=
case $status in
no-tls) exit 2 ;;
[0-9]*) exit "$status" ;;
esac
if [ "$ended" -eq 124 ]; then
    say "not done within $limit s"
    exit 124
fi
say "the machine died without a status"
exit 125
