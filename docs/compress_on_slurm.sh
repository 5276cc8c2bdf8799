#!/bin/bash
# Compresses the tables of a checkpoint on many machines with Slurm.
#
#   compress_on_slurm.sh SHARES CHECKPOINT OUT.safetensors [OPTION ...]
#
# OPTION is what `condprog compress` takes: --model, --tensor, --rate, --effort, --shard-size and so on. Checkpoint and
# output lie where all machines see them. What Slurm needs to know beside, such as a partition or a time limit, is in
# SBATCH_* variables of the environment. CONDPROG is the program where it is not on the path.
#
# Submits itself twice. First as an array with a task for every share of the rows, each for a machine of its own: its
# part lies in OUT.safetensors.parts, and a task that Slurm starts again, on any machine, resumes where it was.
# Then as a job that waits until all tasks have succeeded, and joins the parts into the very bytes that one machine
# would have written. When a share has failed for good, the same command again does what is left.
set -euo pipefail
if [ $# -lt 3 ]; then
    echo "usage: $0 SHARES CHECKPOINT OUT.safetensors [OPTION ...]" >&2
    exit 2
fi
condprog=${CONDPROG:-condprog}
shares=$1 checkpoint=$2 output=$3
parts=$output.parts

if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
    # Not SLURM_ARRAY_TASK_COUNT: who submits some tasks again has fewer.
    part=$parts/$SLURM_ARRAY_TASK_ID-of-$shares.safetensors
    [ -e "$part" ] ||
        "$condprog" compress "$checkpoint" -o "$part" --part "$SLURM_ARRAY_TASK_ID/$shares" \
            ${SLURM_CPUS_PER_TASK:+--threads "$SLURM_CPUS_PER_TASK"} "${@:4}"
elif [ -n "${SLURM_JOB_ID:-}" ]; then
    "$condprog" join "$parts"/*-of-"$shares".safetensors -o "$output"
    rm -r "$parts"
else
    mkdir -p "$parts"
    job=(--parsable --requeue --open-mode=append --output="$output.%x.log")
    array=$(sbatch "${job[@]}" --job-name=compress --array="0-$((shares - 1))" --nodes=1 --exclusive "$0" "$@")
    sbatch "${job[@]}" --job-name=join --dependency="afterok:$array" "$0" "$@"
fi
