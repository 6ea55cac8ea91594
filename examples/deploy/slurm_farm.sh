#!/bin/bash
# A build farm on Slurm in one job, without dask-jobqueue: a scheduler on the first node, a worker on each.
#
#   LAZYCK_REMOTE=http://cache:8080 sbatch slurm_farm.sh --manifest libattention.so --all
#
#SBATCH --job-name=lazyck-farm
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=02:00:00
set -eu

port=${FARM_PORT:-8786}
cores=${SLURM_CPUS_PER_TASK:-2}
export LAZYCK_JOBS=$cores
host=$(hostname)

dask scheduler --port "$port" --no-dashboard &
scheduler=$!
# A thread compiles one blob; the compilers are processes of their own, which dask's limit does not see.
srun dask worker "$host:$port" --nthreads "$cores" --nworkers 1 --memory-limit 0 --no-dashboard &
workers=$!
trap 'kill "$workers" "$scheduler" 2>/dev/null; wait' EXIT

until (: > "/dev/tcp/$host/$port") 2>/dev/null; do
    kill -0 "$scheduler"
    sleep 1
done
lazyck prebuild build "$@" --executor "dask://$host:$port"
