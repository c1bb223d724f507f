# Plays the commands of a page as root of a network, and of processes, of their own. $1: where they lie, as seen from within; $2: the
# programs, or nothing where they are installed; $3: another root directory, or nothing.
set -eu
place=$1 programs=$2 root=$3
ip link set lo up
hostname data.example.org
if [ -z "$root" ]; then
    mount --bind "$programs" /usr/local/bin
    # What commands change here nobody else sees.
    mount --bind "$place" /mnt
    mount -t tmpfs -o mode=1777 tmpfs /tmp
    mkdir -p "$place"
    mount --move /mnt "$place"
    mount -t tmpfs tmpfs "$place/etc"
    mkdir "$place/etc/upper" "$place/etc/work"
    mount -t overlay overlay -o "lowerdir=/etc,upperdir=$place/etc/upper,workdir=$place/etc/work" /etc
    mount -t tmpfs tmpfs /home
    mount -t tmpfs tmpfs /srv
else
    mount -t proc proc "$root/proc"
fi
echo '127.0.0.1 localhost data.example.org' >"$root/etc/hosts"
for user in you:7001 jo:7002; do
    name=${user%:*} number=${user#*:}
    echo "$name:x:$number:$number::/home/$name:/bin/bash" >>"$root/etc/passwd"
    echo "$name:x:$number:" >>"$root/etc/group"
    mkdir -p "$root/home/$name"
    chown "$number:$number" "$root/home/$name"
done

within() {
    ${root:+chroot "$root"} env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@" </dev/null
}

while read -r who what; do
    case $who in
    stage) within HOME=/root bash -eu "$what" ;;
    root) within HOME=/root bash "$place/block.sh" "$place" $what ;;
    *) within HOME="/home/$who" USER="$who" setpriv --reuid="$who" --regid="$who" --init-groups bash "$place/block.sh" "$place" $what ;;
    esac
done <"$root$place/plan"
