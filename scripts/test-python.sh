#!/bin/sh
# Builds the Python package, installs the wheel into a clean environment, checks the types and runs
# the tests against the programs of GODWIT_PROGRAMS (target/debug). Without Python 3.9 or the
# network this prints a skip, unless GODWIT_REQUIRE_PEERS is set.
#
#   scripts/test-python.sh               the package
#   scripts/test-python.sh --workflows   the plug-ins for Snakemake and Airflow, too, with the real
#                                        packages, which take 350 MB of disk; `cargo xtask check`
#                                        does so where GODWIT_REQUIRE_PEERS is set
set -eu
cd "$(dirname "$0")/.."
out=target/python
tools=$out/tools/bin
GODWIT_PROGRAMS=$(realpath "${GODWIT_PROGRAMS:-target/debug}")
export GODWIT_PROGRAMS PIP_DISABLE_PIP_VERSION_CHECK=1

skip() {
    if [ -n "${GODWIT_REQUIRE_PEERS:-}" ]; then
        echo "python: $*" >&2
        exit 1
    fi
    echo "skipped: the Python package is not tested, $*"
    exit 0
}

rm -rf "$out/dist" "$out/clean"
status=0
scripts/package-python.sh "$out/dist" || status=$?
case $status in
0) ;;
3) skip "what builds it is missing" ;;
*) exit "$status" ;;
esac

# The wheel needs nothing but what it says.
python3 -m venv "$out/clean"
"$out/clean/bin/pip" install --quiet "$out"/dist/*.whl || skip "pip cannot install the wheel"
"$out/clean/bin/python" -c 'import godwit; godwit.Service()'

"$tools/pip" install --quiet --force-reinstall --no-deps "$out"/dist/*.whl
"$tools/mypy" --config-file python/pyproject.toml --cache-dir "$out/mypy" python/src python/tests
"$tools/python" -m pytest --rootdir python -c python/pyproject.toml \
    -o "cache_dir=$PWD/$out/pytest" --durations=5 python/tests

if [ "${1:-}" = --workflows ]; then
    wheel=$(echo "$out"/dist/*.whl)
    for plugin in snakemake airflow; do
        environment=$out/$plugin
        test -d "$environment" || python3 -m venv "$environment"
        set -- pytest "$wheel[fsspec]" "./python/$plugin"
        if [ "$plugin" = snakemake ]; then
            set -- "$@" snakemake
        fi
        # What is ours is new, whatever its version is.
        "$tools/uv" pip install --quiet --python "$environment/bin/python" \
            --reinstall-package godwit --reinstall-package snakemake-storage-plugin-godwit \
            --reinstall-package airflow-provider-godwit "$@" || skip "uv cannot install $plugin"
        "$environment/bin/python" -m pytest --rootdir "python/$plugin" -p no:cacheprovider \
            -c python/pyproject.toml "python/$plugin/tests"
    done
fi
