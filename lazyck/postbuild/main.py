"""Enters the post-build step, which a shim starts in place of the real linker, and before a source
that is compiled by kernel is deferred."""

import sys
import traceback
from pathlib import Path

from lazyck import abi, proc
from lazyck.errors import FormatError, LazyckError, LinkError, of_unexpected
from lazyck.files import encode, write_atomic
from lazyck.formats.record import decode_records
from lazyck.postbuild.build_options import load_options
from lazyck.quantities import counted
from lazyck.settings.environment import environment
from lazyck.toolchains.command import CompileCommand


def main() -> None:
    """Run the post-build for the record in argv[1]. Exits as the build is to see."""
    record = Path(sys.argv[1])
    try:
        run(record)
    except KeyboardInterrupt:
        proc.end_interrupted()
    except Exception as e:  # users see this in their build's output: it says that the error is lazyck's
        if environment().get(abi.ENV_LOG) == "debug":
            traceback.print_exc()
        said = e if isinstance(e, LazyckError) else of_unexpected(e)
        sys.stderr.write("".join(f"lazyck: {line}\n" for line in said.render().splitlines()))
        status = said.status if isinstance(said, LinkError) else 1
        sys.exit(128 - status if status < 0 else status)


def run(record: Path) -> None:
    """Link lazily, or compile host code, as `record` says. Raises `LazyckError`."""
    found = decode_records(record.read_bytes(), str(record))
    if len(found) != 1:
        raise FormatError(f"{record}: not one record", "report this: it is a bug in lazyck")
    options = load_options(record.parent.parent)
    env = environment()
    # Imports here are handled by main if they fail: these import pyelftools.
    if isinstance(found[0], CompileCommand):
        from lazyck.postbuild.eager import make_early

        if reason := make_early(found[0], options, env):
            write_atomic(record.with_name(record.name + abi.SUFFIX_REFUSED), encode(reason.about))
            sys.exit(1)
        return
    from lazyck.postbuild import summary
    from lazyck.postbuild.link import early
    from lazyck.postbuild.link.link import library_dir, link_lazily

    def say(line: str) -> None:
        if options.verbose:
            sys.stderr.write(f"lazyck: {line}\n")

    done = link_lazily(found[0], options, env, say)
    write_atomic(library_dir(found[0], options) / early.RECORD, record.read_bytes())
    if options.says_links:
        sys.stderr.write("".join(f"{line}\n" for line in summary.library_lines(done)))
    say(f"linked {done.output}: {counted(done.lazy, 'lazy blob')}, {len(done.eager)} eager")


if __name__ == "__main__":
    main()
