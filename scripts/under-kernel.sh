#!/bin/sh
# Runs a program under a kernel of Debian's, in an emulated machine: for tests of what the kernel at hand does not have.
#
#   scripts/under-kernel.sh SUITE PROGRAM [ARGUMENT...]      the newest kernel for clouds of this suite: trixie, sid
#
# The machine has the program with its libraries, modules for TLS and for what TCP tells, loopback, a shell and nothing else; /tmp is in memory. The
# files and directories of WITH are there too, at their places, programs with their libraries. What begins with GODWIT_ or RUST_ in
# the environment is passed on. The status is the program's, or 3 where the machine gives none in LIMIT seconds (600). It is
# emulated instruction by instruction: times mean nothing there.
set -eu

[ $# -ge 2 ] || {
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
suite=$1
program=$(realpath "$2")
shift 2
limit=${LIMIT:-600}

say() {
    echo "under-kernel: $*" >&2
}

for tool in qemu-system-x86_64 busybox cpio depmod xz zstd; do
    command -v "$tool" >/dev/null || {
        say "$tool is missing: install qemu-system-x86, busybox-static, cpio, kmod, xz-utils and zstd"
        exit 2
    }
done

# The packages of the kernel, by an apt of its own that knows that suite alone. Of late they are three.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/kernels/$suite
mkdir -p "$cache/lists/partial" "$cache/archives/partial"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" \
    >"$cache/sources.list"
set_apart="-o Dir::Etc::sourcelist=$cache/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$cache/lists
    -o Dir::Cache=$cache -o APT::Sandbox::User=$(id -un)"
# shellcheck disable=SC2086 # options, one a word
{
    apt-get $set_apart -qq update >&2
    package=$(apt-cache $set_apart depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
    release=${package#linux-image-}
    [ -d "$cache/$release" ] || (
        cd "$cache"
        parts=$(apt-cache $set_apart pkgnames "linux-" | grep -Fx -e "linux-binary-$release" -e "linux-modules-$release") || true
        apt-get $set_apart -qq download "$package" $parts >&2
        for file in linux-*.deb; do dpkg-deb -x "$file" new; done
        rm linux-*.deb
        mv new "$release"
    )
}
kernel=$(find "$cache/$release" -path "*$release*" -name "vmlinuz*" -type f | head -n 1)
modules=$(find "$cache/$release" -path "*/lib/modules/$release" -type d | head -n 1)
[ -n "$kernel" ] && [ -n "$modules" ] || {
    say "no kernel, or no modules, in the packages of $release"
    exit 2
}
base=${modules%/lib/modules/*}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
for folder in bin dev etc mnt modules proc run sys tmp; do mkdir -p "$root/$folder"; done
echo 'root:x:0:0:root:/tmp:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
echo '127.0.0.1 localhost' >"$root/etc/hosts"
cp "$(command -v busybox)" "$root/bin/busybox"
for path in ${WITH:-}; do
    mkdir -p "$root${path%/*}"
    cp -aL "$path" "$root$path"
done
# Those of plugins count, too: whatever is no program has none.
find "$root" -type f | while read -r file; do ldd "$file" 2>/dev/null || true; done >"$work/libraries"
install -D "$program" "$root$program"
ldd "$program" >>"$work/libraries" || true
grep -o '/[^ ]*' "$work/libraries" | grep '\.so' | sort -u | while read -r library; do
    install -D "$(realpath "$library")" "$root$library"
done

# The modules and what they need, in the order in which they are loaded.
depmod -b "$base" "$release" 2>/dev/null
load() {
    modprobe -S "$release" -d "$base" --show-depends "$1" 2>/dev/null | sed -n 's/^insmod \([^ ]*\).*/\1/p'
}
{ load aesni_intel; load gcm; load tls; load tcp_diag; } | awk '!seen[$0]++' | while read -r module; do
    name=$(basename "${module%.ko*}")
    case $module in
    *.xz) xz -dc "$module" ;;
    *.zst) zstd -qdc "$module" ;;
    *) cat "$module" ;;
    esac >"$root/modules/$name.ko"
    echo "$name"
done >"$root/modules/order"

quoted=
for argument; do
    quoted="$quoted '$(printf %s "$argument" | sed "s/'/'\\\\''/g")'"
done
{
    echo '#!/bin/busybox sh'
    echo '/bin/busybox --install /bin'
    echo 'mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev'
    # With what is there already.
    echo 'mount -t tmpfs tmp /mnt; cp -a /tmp/. /mnt; mount --move /mnt /tmp'
    echo 'mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm; ip link set lo up; hostname localhost'
    echo 'while read -r name; do insmod "/modules/$name.ko" || echo "under-kernel: no module $name"; done </modules/order'
    env | sed -n "s/'/'\\\\''/g; s/^\(GODWIT_[A-Z_]*\|RUST_[A-Z_]*\)=\(.*\)/export \1='\2'/p"
    echo 'export HOME=/tmp TMPDIR=/tmp PATH=/usr/local/bin:/usr/sbin:/usr/bin:/bin; cd /tmp'
    echo 'echo "under-kernel: Linux $(uname -r)"'
    echo "$program$quoted"
    echo 'status=$?; echo; echo "under-kernel: status $status"'
    echo 'poweroff -f'
} >"$root/init"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$work/initramfs"

timeout "$limit" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 2G -nographic -no-reboot -net none \
    -kernel "$kernel" -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1" </dev/null |
    tr -d '\r' | tee "$work/console" || true
status=$(sed -n 's/^under-kernel: status \([0-9]*\)$/\1/p' "$work/console" | tail -n 1)
[ -n "$status" ] || {
    say "the machine gave no status in $limit s"
    exit 3
}
exit "$status"
