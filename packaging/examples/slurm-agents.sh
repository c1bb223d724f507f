#!/bin/bash
# Agents of a godwit transfer service as an array of Slurm jobs:
#
#   GODWIT_SERVICE=https://transfer.example.org:8447 GODWIT_AGENTS=/shared/agents \
#       sbatch --array=1-8 slurm-agents.sh
#
# GODWIT_AGENTS is a directory on a file system that all nodes have, readable by you only. For each
# task N of the array it holds slurm-N.token, which an operator has made with
#
#   godwit-service enroll slurm-N --to /shared/agents/slurm-N.token --database-file ...
#
# State is kept there, too: a task that is started again on another node continues its transfers.
#SBATCH --job-name=godwit-agents
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=2G
#SBATCH --time=1-00:00:00
#SBATCH --requeue
# Two minutes before the end the agent finishes what it can and hands the rest back.
#SBATCH --signal=B:TERM@120
set -euo pipefail
: "${GODWIT_SERVICE:?the URL of the service}" "${GODWIT_AGENTS:?the directory of the tokens}"
name=slurm-${SLURM_ARRAY_TASK_ID:?start it with sbatch --array}

ca=()
if [ -n "${GODWIT_CA:-}" ]; then
    ca=(--ca "$GODWIT_CA")
fi
umask 077
# In place of the shell, so that the signal of Slurm reaches the agent.
exec godwit-service agent --service "$GODWIT_SERVICE" --name "$name" \
    --token-file "$GODWIT_AGENTS/$name.token" --state "$GODWIT_AGENTS/$name.state" \
    --label "${SLURM_CLUSTER_NAME:-slurm}" --slots "${SLURM_CPUS_PER_TASK:-4}" --drain 100 \
    "${ca[@]}"
