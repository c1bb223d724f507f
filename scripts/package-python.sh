#!/bin/sh
# Makes the wheel and the source distribution of the Python package, in DIR (target/package).
#
#   scripts/package-python.sh [DIR]
#
# What builds them is installed with pip into target/python/tools. Exit status 3: it cannot be
# installed.
set -eu
cd "$(dirname "$0")/.."
out=${1:-target/package}
tools=target/python/tools
requirements=python/test-requirements.txt
export PIP_DISABLE_PIP_VERSION_CHECK=1
# Files are as old as what they were made from, so that equal sources give equal packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

fail() {
    echo "python package: $*" >&2
    exit 3
}

python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || fail "Python 3.9 is missing"
if ! cmp -s "$requirements" "$tools/requirements"; then
    rm -rf "$tools"
    mkdir -p target/python
    python3 -m venv "$tools" || fail "python3 -m venv does not work"
    "$tools/bin/pip" install --quiet --requirement "$requirements" || fail "pip cannot install"
    cp "$requirements" "$tools/requirements"
fi
mkdir -p "$out"
# A copy without links: the licence is that of the tree.
rm -rf target/python/source
cp -RL python target/python/source
"$tools/bin/python" -m build --no-isolation --outdir "$out" target/python/source \
    >target/python/build.log || {
    cat target/python/build.log
    exit 1
}
