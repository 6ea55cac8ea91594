"""Run the short form of `python tests/support/stress.py --chaos SECONDS`."""

from pathlib import Path

import pytest
from support.lazylib import LazyLibrary
from support.stress import build, build_chaos, chaos_env, one_round


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("chaos")
    (made / "lib").mkdir()
    return made


@pytest.fixture(scope="module")
def lib(where: Path) -> LazyLibrary:
    return build(where / "lib")


@pytest.fixture(scope="module")
def chaos(where: Path) -> Path:
    return build_chaos(where)


@pytest.mark.parametrize("seed", [1, 2])
def test_threads_that_sleep_at_random_compile_each_blob_once(lib: LazyLibrary, chaos: Path, seed: int) -> None:
    assert one_round(lib, processes=3, threads=4, more=chaos_env(chaos, seed)) == ""


def test_a_lock_that_does_not_lock_is_found(lib: LazyLibrary, chaos: Path) -> None:
    """This shows that the test above can find a fault."""
    wrong = one_round(lib, processes=3, threads=4, more={**chaos_env(chaos, 1), "CHAOS_BREAK": "flock"})
    assert "compiles per blob" in wrong
