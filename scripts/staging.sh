# What the scripts that make packages have in common; they read this file at the top of the tree.
# shellcheck shell=sh

programs="godwit godwitd godwit-service godwit-lab"
units="godwitd.service godwitd.socket godwitd-node.service godwit-service.service godwit-agent.service"
packages="godwit godwit-service-common godwit-service godwit-agent"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
license=$(sed -n 's/^license = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Files are as old as what they were made from, so that who packs the same gets the same.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

# Puts into tree $1 what all formats have: the programs of $2, whose prefix is $3, and the manuals
# and completions of $4. Programs for another processor come stripped.
stage() {
    tree=$1 from=$2 prefix=$3 share=$4
    install -d "$tree$prefix/bin" "$tree$prefix/share" "$tree/etc/godwit" "$tree/etc/logrotate.d"
    for program in $programs; do
        if [ -n "${stripped:-}" ]; then
            install -m 755 "$from/$program" "$tree$prefix/bin/$program"
        else
            strip -o "$tree$prefix/bin/$program" "$from/$program"
        fi
    done
    cp -R "$share/." "$tree$prefix/share/"
    install -m 644 packaging/godwitd.toml packaging/service.toml packaging/agent.conf "$tree/etc/godwit/"
    install -m 644 packaging/logrotate "$tree/etc/logrotate.d/godwitd"
    install -d "$tree$prefix/share/doc/godwit/examples"
    install -m 644 packaging/sysctl.conf packaging/grafana/*.json packaging/prometheus/godwit.rules.yml \
        "$tree$prefix/share/doc/godwit/examples/"
}

# Writes manuals and completions by godwit-dist $1 into $2.
write_share() {
    "$1" "$2"
    find "$2/man" -type f -exec gzip -9n {} +
}

# The copyright of each package of tree $1.
write_copyright() {
    for package in $packages; do
        install -d "$1/usr/share/doc/$package"
        {
            echo "godwit $version, $license. Libraries it holds: THIRD-PARTY.txt of the package godwit"
            echo "and https://crates.io."
            echo
            cat LICENSE
        } >"$1/usr/share/doc/$package/copyright"
    done
}

# The package that file $1 belongs to, by packaging/parts.
part_of() {
    while read -r pattern package; do
        # shellcheck disable=SC2254 # it is a pattern
        case $1 in
        $pattern)
            echo "$package"
            return
            ;;
        esac
    done <<PARTS
$(grep -v '^#' packaging/parts)
PARTS
}

# The newest version of the C library that program files $@ ask for, as GLIBC_2.28.
needed_libc() {
    for file; do
        objdump -T "$file"
    done | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1
}

# The libraries that program files $@ ask for.
needed_libraries() {
    for file; do
        objdump -p "$file"
    done | awk '$1 == "NEEDED" { print $2 }' | sort -u | xargs
}
