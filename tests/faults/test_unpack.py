"""Tests two processes that unpack a bundle at the same time: neither removes what the other's
compiler reads."""

import errno
import os
import shlex
import shutil
from pathlib import Path

from support import wait_until
from support.faultlib import GOOD, KILL, Patient


def test_a_process_that_unpacks_late_leaves_the_sources_that_others_compile_from(
    packed: Patient, tmp_path: Path
) -> None:
    """Locks do not work here. The late process is killed at its first rename. That would be the
    rename of the bundle, if the process replaced the bundle."""
    slow_tar = tmp_path / "bin/tar"
    slow_tar.parent.mkdir()

    def compiles(process: int) -> bool:
        return bool(list(packed.cache.glob(f".staging/add-{process}@*/log")))

    begun, may_unpack, may_compile = (tmp_path / name for name in ("begun", "may-unpack", "may-compile"))
    slow_tar.write_text(
        f"#!/bin/sh\ntouch {shlex.quote(str(begun))}\n"
        f"while [ ! -e {shlex.quote(str(may_unpack))} ]; do sleep 0.05; done\n"
        f'exec {shutil.which("tar")} "$@"\n'
    )
    slow_tar.chmod(0o755)
    compiler = packed.lib.compiler.read_text()
    wait = f"while [ ! -e {shlex.quote(str(may_compile))} ]; do sleep 0.05; done\n"
    packed.lib.compiler.write_text(compiler.replace("#!/bin/sh\n", "#!/bin/sh\n" + wait))
    try:
        no_locks = {"FAULT_FLOCK": str(errno.EOPNOTSUPP)}
        path = f"{slow_tar.parent}:{os.environ['PATH']}"
        late = packed.start(env=packed.faulty(1, KILL, FAULT_OPS="rename", PATH=path, **no_locks))
        wait_until(begun.exists)
        early = packed.start(env=packed.faulty(0, 0, **no_locks))
        wait_until(lambda: list(packed.cache.glob(".bundles/*/*/contents")))
        wait_until(lambda: compiles(early.pid))
        may_unpack.touch()
        wait_until(lambda: late.poll() is not None or compiles(late.pid))
        may_compile.touch()
        late.communicate(timeout=60)
        out, err = early.communicate(timeout=60)
        assert (early.returncode, out) == (0, GOOD), err
    finally:
        packed.lib.compiler.write_text(compiler)
