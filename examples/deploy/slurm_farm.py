"""Run a build farm on Slurm by dask-jobqueue: each worker is a job that comes and goes with the
queue.

    pip install 'lazyck[farm]' dask-jobqueue
    export LAZYCK_REMOTE=http://cache:8080
    python slurm_farm.py --queue cpu --workers 8 -- --manifest libattention.so --all

The words after `--` go to `lazyck prebuild build`. The scheduler runs where this script runs: on a
login node, or in a small job. With --show the script prints the script of a worker's job and ends.
Others who reach the scheduler's port run code as you, unless dask's configuration has certificates
for TLS (docs/scale.md).
"""

import argparse
import os
import shlex
import subprocess
import sys

from dask_jobqueue import SLURMCluster
from distributed.security import Security

FORWARDED = ("LAZYCK_REMOTE", "LAZYCK_SIGN_KEY", "LAZYCK_REMOTE_TIMEOUT", "ROCM_PATH", "CUDA_HOME")


def main() -> None:
    parser = argparse.ArgumentParser(description="lazyck prebuild build on workers that Slurm starts")
    parser.add_argument("--queue", help="Slurm's partition")
    parser.add_argument("--workers", type=int, default=4, help="jobs, each on a node or a part of one")
    parser.add_argument("--cores", type=int, default=16, help="of a worker: so many compiles at a time")
    parser.add_argument("--memory", default="64GB", help="of a worker")
    parser.add_argument("--time", default="02:00:00", help="after which Slurm ends a worker")
    parser.add_argument("--show", action="store_true", help="print the job script of a worker")
    parser.add_argument("build", nargs="*", help="options of lazyck prebuild build")
    args = parser.parse_args()
    # Slurm keeps a job script and shows it to operators. So a URL with a password goes only by the
    # environment, which sbatch passes on by default.
    given = {name: os.environ[name] for name in FORWARDED if os.environ.get(name)}
    settings = [f"export {k}={shlex.quote(v)}" for k, v in given.items() if not ("://" in v and set("@?") & set(v))]
    security = Security()
    cluster = SLURMCluster(
        queue=args.queue,
        cores=args.cores,
        processes=1,
        memory=args.memory,
        walltime=args.time,
        python=sys.executable,
        security=security if security.tls_ca_file else None,
        job_script_prologue=[*settings, f"export LAZYCK_JOBS={args.cores}"],
        # The compilers are processes of their own, which dask's limit for its worker does not
        # cover.
        worker_extra_args=["--memory-limit", "0"],
    )
    if args.show:
        print(cluster.job_script())
        return
    cluster.scale(jobs=args.workers)
    address = cluster.scheduler_address.replace("tcp://", "dask://").replace("tls://", "dask+tls://")
    argv = [sys.executable, "-m", "lazyck", "prebuild", "build", *args.build, "--executor", address]
    try:
        sys.exit(subprocess.run(argv).returncode)
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
