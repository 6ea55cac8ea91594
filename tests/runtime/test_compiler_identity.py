"""Tests that `lazyck-rt make`, which runs where there may be no Python, names a compiler as the
build does."""

import subprocess
from pathlib import Path

import pytest
from support.bundles import Bundle, make_bundle

from lazyck.toolchains.identity import compiler_identity, identity_of, mark_of

TEXTS = {
    "gcc": "g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022 Free Software Foundation, Inc.\n",
    "gcc-of-another-name": "x86_64-linux-gnu-c++ (GCC) 13.1.1 20230614 (Red Hat 13.1.1-4)\n",
    "gcc-twice": "gcc (Ubuntu (x) 11.4.0-1ubuntu1~22.04) 11.4.0\n",
    "clang": "Debian clang version 19.1.7 (3~deb12u1)\nTarget: x86_64-pc-linux-gnu\nThread model: posix\n"
    "InstalledDir: /usr/lib/llvm-19/bin\n",
    "hip": "HIP version: 6.2.41134-65d174c3e\nAMD clang version 18.0.0git (https://x/y roc-6.2 24355)\n"
    "Target: x86_64-unknown-linux-gnu\nThread model: posix\nInstalledDir: /opt/rocm-6.2/lib/llvm/bin\n"
    "Configuration file: /opt/rocm/lib/llvm/bin/clang++.cfg\n",
    "only-hip": "HIP version: 5.2.3\nat=/opt/rocm\n",
    "nvcc": "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation\n"
    "Built on Wed_Aug_20_01:58:59_PM_PDT_2025\nCuda compilation tools, release 13.0, V13.0.88\n"
    "Build cuda_13.0.r13.0/compiler.36424714_0\n",
    "llvm": "lazyck-irc, LLVM version 20.1.8\n  \n\tdefault target: x86_64\n",
    "places": "mycc 1.2\n/opt/x\nfrom /opt\npath:/opt\na /\nhttp://kept\ncollect_gcc=1\n  InstalledDir: here\n",
    "nothing": "",
}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_compiler_has_one_name_everywhere(kind: str, tmp_path: Path, rt_tool: Path) -> None:
    text = TEXTS[kind]
    (tmp_path / "version").write_text(text)
    script = tmp_path / "b/cxx"
    # What a compiler says besides, as a warning, does not count.
    told = f"if [ \"$1\" = --version ]; then cat '{tmp_path}/version'; echo warning >&2; exit; fi\n"

    def make_told(identity: str) -> Bundle:
        bundle = make_bundle(tmp_path / "b", ["one"], toolchain="host", toolchain_id=identity, programs=[str(script)])
        script.write_text(script.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{told}"))
        return bundle

    make_told("unknown yet")
    identity = compiler_identity((str(script),), programs=(str(script),))
    bundle = make_told(identity)
    assert make(rt_tool, bundle.file, tmp_path).returncode == 0
    assert {p.name for p in (tmp_path / "made").iterdir()} == {"entry", "log", "cost"}
    assert not list(tmp_path.glob("cache-*"))
    # Another version is another compiler, and both are named.
    (tmp_path / "version").write_text("clang version 99.0\n")
    done = make(rt_tool, bundle.file, tmp_path)
    other = identity_of("clang version 99.0\n", (mark_of(str(script), None),))
    assert done.returncode == 1
    assert f"is {other}, but the library was built with {identity}" in done.stderr


def make(rt: Path, manifest: Path, where: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin"}
    return subprocess.run([rt, "make", "--from", manifest, "--quiet", "--", "one"], cwd=where, env=env,
                          capture_output=True, text=True)  # fmt: skip
