#!/bin/bash
# Runs a build farm on Slurm in one job, without dask-jobqueue: a scheduler on the first node, a
# worker on each.
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

# Whoever reaches the scheduler's port runs code as you, and other users of the cluster can reach
# it. So only those who have this job's own key are let in. All nodes share the home directory.
umask 077
tls=$(mktemp -d "$HOME/.lazyck-farm-XXXXXX")
openssl req -x509 -newkey rsa:3072 -nodes -days 30 -subj /CN=farm -keyout "$tls/key.pem" -out "$tls/cert.pem" 2>"$tls/log"
export DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=true DASK_DISTRIBUTED__COMM__TLS__CA_FILE="$tls/cert.pem"
for role in CLIENT SCHEDULER WORKER; do
    export "DASK_DISTRIBUTED__COMM__TLS__${role}__CERT=$tls/cert.pem" "DASK_DISTRIBUTED__COMM__TLS__${role}__KEY=$tls/key.pem"
done

dask scheduler --protocol tls --port "$port" --no-dashboard &
scheduler=$!
# A thread compiles one blob. The compilers are processes of their own, which dask's limit does not
# cover.
srun dask worker "tls://$host:$port" --nthreads "$cores" --nworkers 1 --memory-limit 0 --no-dashboard &
workers=$!
trap 'kill "$workers" "$scheduler" 2>/dev/null; wait; rm -r "$tls"' EXIT

until (: > "/dev/tcp/$host/$port") 2>/dev/null; do
    kill -0 "$scheduler"
    sleep 1
done
lazyck prebuild build "$@" --executor "dask+tls://$host:$port"
