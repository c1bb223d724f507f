#!/bin/bash
# A step of a CI pipeline that copies by a godwit transfer service and waits:
#
#   ci-transfer.sh [options of godwit submit] SOURCE... DESTINATION
#
# The pipeline sets GODWIT_SERVICE, and GODWIT_SERVICE_TOKEN from its secrets. A step that is
# repeated within one run of the pipeline finds its job again; a pipeline that is ended cancels it.
set -euo pipefail
: "${GODWIT_SERVICE:?the URL of the service}" "${GODWIT_SERVICE_TOKEN:?a token, from a secret}"

# GitHub and Gitea, GitLab, Jenkins.
run=${GITHUB_RUN_ID:-${CI_JOB_ID:-${BUILD_TAG:-}}}
key=()
if [ -n "$run" ]; then
    copies=$(printf '%s\0' "$@" | sha256sum | cut -c 1-16)
    key=(--idempotency-key "ci-$run-${GITHUB_RUN_ATTEMPT:-1}-$copies")
fi

job=$(godwit submit "${key[@]}" "$@")
echo "job $job"
trap 'godwit cancel "$job"; exit 143' INT TERM
status=0
# In the background, so that the trap need not wait for it.
godwit job --watch "$job" &
wait $! || status=$?
if [ "$status" -ne 0 ]; then
    godwit job --failed "$job" >&2
fi
exit "$status"
