"""Test the package's interface for programs: what it exports, prefetching, and blocks in which
nothing is compiled."""

import pydoc
from pathlib import Path

import pytest
from support import REPOSITORY
from support.demo_libraries import Python, slow

import lazyck

# -- what the package shows ------------------------------------------------------------------------


def test_help_is_of_the_interface_alone() -> None:
    shown = pydoc.plain(pydoc.render_doc(lazyck))
    for name in lazyck.__all__:
        assert f"class {name}(" in shown or f"\n    {name}(" in shown, name
    assert "__getattr__" not in shown
    assert "DATA" not in shown
    assert dir(lazyck) == sorted(lazyck.__all__)


def test_errors_of_the_interface_are_caught_by_its_own_names(python: Python) -> None:
    python("""
for call in (lambda: lazyck.load("/lib/x86_64-linux-gnu/libc.so.6"), lazyck.prefetch):
    try:
        call()
    except lazyck.LazyckError as error:
        assert error.hint, error
    else:
        sys.exit("no error")
try:
    lazyck.load(path).prefetch("no_such_*")
except lazyck.CompileError as error:
    assert isinstance(error, lazyck.LazyckError) and "'no_such_*'" in str(error) and error.hint
else:
    sys.exit("no error")
""")


# -- prefetching -----------------------------------------------------------------------------------


def test_a_prefetch_says_what_and_how_far_it_is(python: Python) -> None:
    done = python("""
job = lazyck.load(path).prefetch("t*")
job.wait()
print(job)
""")
    assert done.stdout == "<lazyck.Prefetch of libdemo.so: 2 of 2 blobs ready, over>\n"


def test_one_prefetch_is_of_all_libraries_and_a_name_that_none_has_is_an_error(python: Python) -> None:
    done = python("""
lazyck.load(path), lazyck.load(other)
print(lazyck.prefetch(["four", "one"]).wait())
print(lazyck.prefetch("*o*").wait().total)
for what in (["one", "nonsense"], "nonsense*"):
    try:
        lazyck.prefetch(what)
    except lazyck.CompileError as error:
        print(str(error))
""")
    assert done.stdout.splitlines() == [
        "Progress(total=2, ready=2, failed=0, is_over=True, seconds_left=0.0)",
        "3",
        "no loaded lazy library has a blob 'nonsense'",
        "no loaded lazy library has a blob 'nonsense*'",
    ]
    assert "left out" not in done.stderr


@pytest.mark.parametrize(("which", "ready"), [("demo", 1), ("other", 3)])
def test_a_failure_in_any_library_is_raised_to_who_awaits(python: Python, which: str, ready: int) -> None:
    compiler = {"demo": python.demo, "other": python.other}[which].compiler
    script = slow(compiler, "echo 'error: no'; exit 1")
    try:
        done = python("""
lazyck.load(path), lazyck.load(other)
async def main():
    job = lazyck.prefetch()
    try:
        await job
    except lazyck.CompileError as error:
        print(str(error).splitlines()[0], job, sep="\\n")
asyncio.run(main())
""")
    finally:
        compiler.write_text(script)
    first, shown = done.stdout.splitlines()
    assert "cannot compile blob" in first
    assert f"{ready} of 4 blobs ready, {4 - ready} failed, over" in shown


def test_the_event_loop_runs_while_a_task_awaits_and_cancelling_it_leaves_the_prefetch(
    python: Python, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    script = slow(python.demo.compiler, f"for i in $(seq 600); do [ -e {gate} ] && break; sleep 0.1; done")
    try:
        done = python(f"""
library = lazyck.load(path)
async def main():
    job = lazyck.prefetch(["one", "two"])
    try:
        await asyncio.wait_for(job, 0.3)  # the compilers wait for the gate: only a loop that runs gets here
    except asyncio.TimeoutError:
        print("cancelled")
    open({str(gate)!r}, "w").close()
    print(await job)
asyncio.run(main())
""")
    finally:
        python.demo.compiler.write_text(script)
    assert done.stdout == "cancelled\nProgress(total=2, ready=2, failed=0, is_over=True, seconds_left=0.0)\n"


def test_a_prefetch_that_nobody_keeps_goes_on(python: Python) -> None:
    script = slow(python.demo.compiler, "sleep 0.2")
    try:
        python(f"""
sys.path.append({str(REPOSITORY / "tests")!r})
from support import wait_until
library = lazyck.load(path)
library.prefetch(list(library.blobs()), workers=1)
gc.collect()
wait_until(lambda: library.stats().loaded == 3)
""")
    finally:
        python.demo.compiler.write_text(script)


# -- blocks in which nothing is compiled -----------------------------------------------------------


def test_nothing_is_compiled_within_a_block_by_any_thread_or_library(python: Python) -> None:
    done = python("""
first = ctypes.CDLL(path)
assert first.call(3, 10) == 13  # from now on its settings hold
with lazyck.forbid_jit():
    second = ctypes.CDLL(other)  # loaded within it
    found = []
    thread = threading.Thread(target=lambda: found.append(first.call(1, 10)))
    thread.start()
    thread.join()
    print(found, first.call(2, 10), os.environ["LAZYCK_JIT"])
    try:
        lazyck.load(other).prefetch("four").wait()
    except lazyck.CompileError as error:
        print("is missing" in str(error))
print(first.call(1, 10), second.call_four(10), os.environ.get("LAZYCK_JIT"))
""")
    assert done.stdout.splitlines() == ["[-1] -1 off", "True", "11 14 None"]


def test_blocks_end_in_any_order_and_the_last_one_restores(python: Python) -> None:
    done = python("""
library = lazyck.load(path)
def is_forbidden():
    before = library._handle.lazyck_forbid_jit(1)
    library._handle.lazyck_forbid_jit(before)
    return before
outer, inner, own = lazyck.forbid_jit(), lazyck.forbid_jit(), library.forbid_jit()
seen = []
outer.__enter__(); inner.__enter__(); own.__enter__()
for block in (outer, own, inner):
    seen.append(is_forbidden())
    block.__exit__(None, None, None)
print(seen, is_forbidden())
with library.forbid_jit():
    try:
        with lazyck.forbid_jit(), lazyck.forbid_jit():
            raise KeyError
    except KeyError:
        print(is_forbidden())
print(is_forbidden(), os.environ.get("LAZYCK_JIT"))
""")
    assert done.stdout.splitlines() == ["[1, 1, 1] 0", "1", "0 None"]


def test_what_the_environment_forbids_stays_forbidden_after_a_block(python: Python) -> None:
    done = python(
        """
first = ctypes.CDLL(path)
with lazyck.forbid_jit():
    second = lazyck.load(other)
    assert first.call(1, 10) == -1
print(first.call(1, 10), os.environ["LAZYCK_JIT"])
try:
    second.prefetch("four").wait()
except lazyck.CompileError:
    print("forbidden")
""",
        LAZYCK_JIT="off",
    )
    assert done.stdout == "-1 off\nforbidden\n"


@pytest.mark.parametrize("good", ["path", "other"])
def test_a_block_that_cannot_begin_leaves_all_as_it_was(python: Python, good: str) -> None:
    done = python(f"""
lazyck.load(path), lazyck.load(other)
library = lazyck.load({good})
assert library.stats().loaded == 0  # from now on its settings hold
os.environ["LAZYCK_JOBS"] = "nonsense"
try:
    with lazyck.forbid_jit():
        sys.exit("no error")
except lazyck.LazyckError as error:
    print("LAZYCK_JOBS" in str(error))
print(library.prefetch("*o*").wait().failed, os.environ.get("LAZYCK_JIT"))
""")
    assert done.stdout == "True\n0 None\n"
