"""Makes bundles of tiny blobs by hand in a moment, for tests that fill, ship and maintain
caches."""

import contextlib
import hashlib
import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lazyck import abi
from lazyck.formats.manifest import BlobRecord, Manifest, Recipe, encode
from lazyck.formats.tarball import write_tarball
from lazyck.postbuild.describe import digest_of_keys
from support import HERE, Lazyck


@dataclass(frozen=True)
class Bundle:
    """A manifest with its sources, and a compiler that logs its calls."""

    directory: Path
    manifest: Manifest

    @property
    def file(self) -> Path:
        """Return the path to pass as `--manifest`."""
        return self.directory / "lazyck" / self.manifest.library / "manifest"

    @property
    def slow(self) -> Path:
        """Return the file that holds how many seconds each compile sleeps. By default there is
        none."""
        return self.directory / "slow"

    def compiled(self) -> list[str]:
        """Return the blobs whose compile step has ended, in that order."""
        log = self.directory / "calls.log"
        return log.read_text().split() if log.exists() else []

    def overlaps(self) -> int:
        """Return the largest number of compiles that ran at the same time."""
        most = now = 0
        for line in (self.directory / "spans.log").read_text().split():
            now += 1 if line == "begin" else -1
            most = max(most, now)
        return most

    def source(self, blob: str) -> Path:
        """Return the path of a blob's source."""
        return self.directory / "lazyck" / "src" / f"{blob}.cpp"


def archive_sources(root: Path, library: str) -> Path:
    """Pack `<root>/src` into one archive, as in a deployed bundle, and return the archive's
    path."""
    files = sorted((root / "src").iterdir())
    lines = [f"{hashlib.sha256(f.read_bytes()).hexdigest()} src/{f.name}".encode() for f in files]
    contents = b"".join(line + b"\0" for line in [b"lazyck contents 1", *lines])
    archive = root / library / abi.BUNDLE_ARCHIVE
    with archive.open("wb") as out:
        write_tarball(out, [*((f"src/{f.name}", f) for f in files), (f"{library}/contents", contents)])
    shutil.rmtree(root / "src")
    return archive


def make_bundle(
    directory: Path,
    blobs: Mapping[str, str] | Sequence[str],
    *,
    name: str = "libtiny",
    archs: Sequence[str] = (),
    toolchain: str = "",
    toolchain_id: str = "g++-test",
    flags: Sequence[str] = ("-O1",),
    programs: Sequence[str] = (),
    headers: Sequence[Path] = (),
) -> Bundle:
    """Make a bundle of `blobs`: a mapping from name to source, or only names. With `archs`, they
    are blobs for GPUs. With `programs`, the compiler is asked which one it is, and the `headers`
    are compared with what they are now."""
    root = directory / "lazyck"
    (root / "src").mkdir(parents=True, exist_ok=True)
    (root / name).mkdir(exist_ok=True)
    script = directory / "cxx"
    where = shlex.quote(str(directory))
    script.write_text(
        "#!/bin/sh\n"
        f"here={where}\n"
        "step=link\n"
        'for word; do shift; case "$word" in\n'
        "  --offload-arch=*) continue ;;\n"
        '  *.cpp) source="${word##*/}" ;;\n'
        "  -c) step=compile ;;\n"
        'esac; set -- "$@" "$word"; done\n'
        f'[ "$step" = link ] && exec {HERE.cxx} "$@"\n'
        'echo begin >> "$here/spans.log"\n'
        '[ -f "$here/slow" ] && sleep "$(cat "$here/slow")"\n'
        f'{HERE.cxx} "$@"; status=$?\n'
        'echo end >> "$here/spans.log"\n'
        'echo "${source%.cpp}" >> "$here/calls.log"\n'
        "exit $status\n"
    )
    script.chmod(0o755)
    texts = (
        blobs if isinstance(blobs, Mapping) else {b: f'extern "C" int {b}() {{ return {len(b)}; }}\n' for b in blobs}
    )
    records = []
    for blob, text in texts.items():
        (root / "src" / f"{blob}.cpp").write_text(text)
        digest = hashlib.sha256(repr((text, list(flags))).encode()).hexdigest()
        records.append(BlobRecord(blob, f"src/{blob}.cpp", 0, digest, (blob,)))
    listed = b"lazyck headers 1\0"
    listed += b"".join(f"{hashlib.sha256(h.read_bytes()).hexdigest()} {h}\0".encode() for h in headers)
    if headers:
        (root / name / "tree/.lazyck").mkdir(parents=True, exist_ok=True)
        (root / name / "tree/.lazyck/host.headers").write_bytes(listed)
    recipe = Recipe(
        toolchain=toolchain or ("rocm" if archs else "host"),
        toolchain_id=toolchain_id,
        home="",
        home_env=(),
        compile=(str(script), abi.PH_ARCHS, "-fPIC", *flags, "-I", f"{abi.PH_ROOT}/src", "-c", abi.PH_SOURCE, "-o",
                 abi.PH_OUTPUT),
        link=(str(script), "-shared", "-o", abi.PH_OUTPUT, abi.PH_INPUT),
        arch_flags=(f"--offload-arch={abi.PH_ARCH}",) if archs else (),
        programs=tuple(programs),
        headers=hashlib.sha256(listed).hexdigest() if headers else "",
    )  # fmt: skip
    digest = digest_of_keys(records, [recipe])
    manifest = Manifest(
        name, f"{name}.so", "", "", tuple(archs), (recipe,), tuple(records), (), "test", digest, HERE.name
    )
    bundle = Bundle(directory, manifest)
    bundle.file.write_bytes(encode(manifest))
    return bundle


def build(lazyck: Lazyck, bundle: Bundle, *words: str | Path, env: Mapping[str, str] | None = None) -> dict:  # type: ignore[type-arg]
    """Run `lazyck prebuild build --json`. Return its decoded output, plus the exit status as
    `status` and the messages as `stderr`."""
    done = lazyck("prebuild", "build", "--manifest", bundle.file, "--json", *words, env=env)
    assert done.stdout, done.stderr
    return json.loads(done.stdout) | {"status": done.returncode, "stderr": done.stderr}  # type: ignore[no-any-return]


def sleeping(seconds: str) -> list[str]:
    """Return the processes `sleep SECONDS`, which compilers of bundles have started, by their
    numbers."""
    wanted = f"sleep\0{seconds}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [path.parent.name] if path.read_bytes() == wanted else []
    return found


def entries(cache: Path) -> dict[str, Path]:
    """Return the cache's entries by `<arch>/<blob>`."""
    found = sorted(cache.glob("v1/*/*/*.so"))
    return {f"{p.parent.name.partition('-')[0]}/{p.name.rpartition('-')[0]}": p for p in found}
