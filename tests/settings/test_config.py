"""Tests settings: the environment, the user's file, the project's file, and `lazyck config`, which
shows them."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import Lazyck
from support.bundles import Bundle, make_bundle

from lazyck import abi
from lazyck.commands.config import examine
from lazyck.commands.doctor import directories
from lazyck.errors import UsageError
from lazyck.prebuild.farm.cluster import scheduler_address
from lazyck.settings.variables import BY_NAME
from lazyck.toolchains.requirement import RequirementState

CACHE = "LAZYCK_CACHE_DIR"


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    """Return the place of the user's file, which does not exist."""
    (tmp_path / "config" / "lazyck").mkdir(parents=True)
    return tmp_path / "config" / "lazyck" / "lazyck.env"


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "b", ["fwd_a", "fwd_b", "bwd_a"])


def settings(lazyck: Lazyck, status: int = 0, **env: str) -> dict[str, dict[str, Any]]:
    """Return the settings that `lazyck config` prints, by variable."""
    done = lazyck("config", "--json", env=env)
    assert done.returncode == status, done.stdout + done.stderr
    return {s["name"]: s for s in json.loads(done.stdout)["settings"]}


def test_every_variable_is_described() -> None:
    assert sorted(BY_NAME) == abi.VARIABLES.split()


def test_config_shows_each_variable_with_its_origin(lazyck: Lazyck, user_file: Path) -> None:
    user_file.write_text("# mine\n\nLAZYCK_JOBS = 3\nLAZYCK_LOG=warn\nLAZYCK_REMOTE=https://me:secret@host/x\n")
    found = settings(lazyck, LAZYCK_LOG="debug")
    assert set(found) == set(BY_NAME)
    assert (found["LAZYCK_JOBS"]["value"], found["LAZYCK_JOBS"]["source"]) == ("3", f"{user_file}:3")
    assert (found["LAZYCK_LOG"]["value"], found["LAZYCK_LOG"]["source"]) == ("debug", "environment")
    assert found["LAZYCK_REMOTE"]["value"] == "https://host/x"
    assert (found["LAZYCK_ON_ERROR"]["value"], found["LAZYCK_ON_ERROR"]["source"]) == ("throw", "default")
    assert found[CACHE]["value"] == os.environ[CACHE]
    text = lazyck("config").stdout
    assert ["LAZYCK_JOBS", "3", f"{user_file}:3"] in [line.split() for line in text.splitlines()]
    assert f"the user's file: {user_file}" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    "url", ["s://me:secret@host", "s://me:se/s?cr,e t@secret@host/x|trusted", "s://host/?t=secret"]
)
def test_no_setting_is_shown_with_a_password(url: str) -> None:
    env = {"HOME": "/h", **dict.fromkeys(BY_NAME, f"run {url}")}
    assert [s for s in examine(env).settings if "secret" in s.value + s.problem] == []
    (shown,) = (s.value for s in examine(env).settings if s.name == "LAZYCK_LAUNCHER")
    assert shown.startswith("run s://") and "host" in shown
    with pytest.raises(UsageError) as e:
        scheduler_address(f"dask{url.removeprefix('s')}:8786")
    assert "secret" not in e.value.render()


def test_config_says_what_is_wrong(lazyck: Lazyck, user_file: Path) -> None:
    user_file.write_text("LAZYCK_JBOS=3\nexport LAZYCK_REMOTE=https://me:secret@host/\n")
    env = {"LAZYCK_JOBS": "none", "LAZYCK_CACHEDIR": "/x", "LAZYCK_REMOTE": "gopher://me:secret@host/"}
    done = lazyck("config", env=env)
    assert done.returncode == 1
    lines = [line.split() for line in done.stdout.splitlines()]
    at = lines.index(["LAZYCK_JOBS", "none", "environment"])
    assert lines[at + 1] == ["wrong:", "must", "be", "a", "number", "from", "1", "to", "4096"]
    assert "LAZYCK_CACHEDIR is not a variable of lazyck; did you mean LAZYCK_CACHE_DIR?" in done.stdout
    assert "LAZYCK_JBOS is not a variable of lazyck; did you mean LAZYCK_JOBS?" in done.stdout
    assert f"{user_file}:2: not LAZYCK_NAME=VALUE" in done.stdout
    assert "gopher" in done.stdout and "secret" not in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"XDG_CACHE_HOME": "/x/../y"}, "XDG_CACHE_HOME or HOME gives the cache '/x/../y/lazyck'"),
        ({"LAZYCK_CACHE_DIR": "x"}, "must be an absolute path"),
        ({"LAZYCK_NAME": "../up"}, ""),  # another setting says so
    ],
)
def test_a_cache_that_the_runtime_refuses_is_said(env: dict[str, str], said: str) -> None:
    env = {"HOME": "/h", **env}
    (setting,) = (s for s in examine(env).settings if s.name == "LAZYCK_CACHE_DIR")
    assert said in setting.problem
    assert bool(said) == bool(setting.problem)
    (check,) = directories(env)
    assert check.state is RequirementState.MISSING
    assert (said or "LAZYCK_NAME='../up'") in check.detail
    assert check.install


def test_any_command_warns_of_an_unknown_variable(lazyck: Lazyck, user_file: Path, bundle: Bundle) -> None:
    user_file.write_text("LAZYCK_LOGG=warn\n")
    env = {"LAZYCK_CACHEDIR": "/x", "LAZYCK_TEST_TORCH": "1"}
    done = lazyck("prebuild", "build", "--manifest", bundle.file, "fwd_a", env=env)
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "warning" in line]
    assert warnings == [
        "lazyck: warning: LAZYCK_CACHEDIR is not a variable of lazyck; did you mean LAZYCK_CACHE_DIR?",
        f"lazyck: warning: {user_file}: LAZYCK_LOGG is not a variable of lazyck; did you mean LAZYCK_LOG?",
    ]


def test_commands_take_the_users_file_behind_the_environment(
    lazyck: Lazyck, user_file: Path, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CACHE)
    mine, other = tmp_path / "mine", tmp_path / "other"
    user_file.write_text(f"{CACHE}={mine}\n")
    for env, cache in (({}, mine), ({CACHE: str(other)}, other)):
        assert lazyck("prebuild", "build", "--manifest", bundle.file, "fwd_a", env=env).returncode == 0
        assert len(list(cache.glob("v1/*/*/*.so"))) == 1
        assert f"cache     {cache}" in lazyck("cache", "stats", env=env).stdout


@pytest.mark.parametrize("who", ["the file", "its directory"])
def test_a_file_that_others_could_have_written_is_not_read(lazyck: Lazyck, user_file: Path, who: str) -> None:
    user_file.write_text("LAZYCK_LAUNCHER=/tmp/theirs\n")
    place = user_file if who == "the file" else user_file.parent
    place.chmod(0o777)
    assert settings(lazyck, status=1)["LAZYCK_LAUNCHER"]["source"] == "default"
    done = lazyck("doctor")
    assert f"lazyck: warning: {user_file} is not read: {place}: others can write to it" in done.stderr


def test_where_the_file_cannot_be_looked_for_there_is_none(lazyck: Lazyck) -> None:
    done = lazyck("config", env={"XDG_CONFIG_HOME": "/" + "x" * 300})
    assert done.returncode == 0, done.stderr


# Each variable has values that both of lazyck's readers (the commands and the runtime) must accept,
# and values that both must reject.
VALUES = [
    ("LAZYCK_JOBS", ["1", "4096", ""], ["0", "4097", "x", "1.5", "-1", "99999999999"]),
    ("LAZYCK_TEXT_KEYS", ["0", "1", "yes", "off", ""], ["2", "maybe", "TRUE"]),
    ("LAZYCK_LOCK_TIMEOUT", ["0", "90", "0.5"], ["-1", "x", "10s", "1e3", "9999999999"]),
    ("LAZYCK_MEM_PER_JOB", ["0", "4G", "1.5G", "800K"], ["4", "-4G", "4X"]),
    ("LAZYCK_ARCHS", ["gfx942", "gfx942;gfx950", "8.0 90,sm_90", "gfx942:xnack-", ""], ["gfx/942", "-80", "a;b/c"]),
    ("LAZYCK_ON_ERROR", ["throw", "abort"], ["ignore"]),
    ("LAZYCK_LOG", ["error", "debug"], ["verbose", "INFO"]),
    ("LAZYCK_LOG_FORMAT", ["text", "json"], ["xml"]),
    ("LAZYCK_NAME", ["mine", "a b"], ["a/b", ".", "../up"]),
    ("LAZYCK_CACHE_DIR", ["/tmp/x", "/tmp//x/", "/tmp/./x"], ["x", "/", "/a/../b", "//"]),
    ("LAZYCK_CACHE_PATH", ["/a:/b", "/a::/b"], ["a", "/a:b", "/a/.."]),
]


@pytest.mark.parametrize(("variable", "good", "bad"), VALUES, ids=[v[0] for v in VALUES])
def test_commands_and_runtime_judge_values_alike(
    variable: str, good: list[str], bad: list[str], bundle: Bundle, rt_tool: Path
) -> None:
    def runtime_takes(value: str) -> bool:
        argv: list[str | Path] = [rt_tool, "path", "--quiet", "--from", bundle.file]
        done = subprocess.run(argv, env={**os.environ, variable: value}, capture_output=True, text=True)
        assert done.returncode == 0 or variable in done.stderr
        return done.returncode == 0

    for values, expected in ((good, True), (bad, False)):
        assert {v: not BY_NAME[variable].problem(v) for v in values} == dict.fromkeys(values, expected)
        assert {v: runtime_takes(v) for v in values} == dict.fromkeys(values, expected)


def test_the_runtime_names_the_file_with_a_value_that_makes_no_sense(
    user_file: Path, bundle: Bundle, rt_tool: Path
) -> None:
    user_file.write_text("LAZYCK_JOBS=none\n")
    done = subprocess.run([rt_tool, "path", "--from", bundle.file], capture_output=True, text=True)
    assert f"{user_file}: LAZYCK_JOBS=none: must be a number from 1 to 4096" in done.stderr


def project(directory: Path, text: str) -> Path:
    """Make a project of one blob with this pyproject.toml."""
    (directory / "gen").mkdir(parents=True)
    (directory / "gen" / "k.cpp").write_text("int k() { return 7; }\n")
    (directory / "main.cpp").write_text('int k();\nextern "C" int run() { return k(); }\n')
    (directory / "build.sh").write_text(
        "c++ -fPIC -c gen/k.cpp -o k.o && c++ -fPIC -c main.cpp -o main.o && c++ -shared k.o main.o -o libk.so\n"
    )
    (directory / "pyproject.toml").write_text(text)
    return directory


BUILD = ("build", "full", "--", "sh", "build.sh")


def test_a_project_says_how_it_is_built(lazyck: Lazyck, tmp_path: Path) -> None:
    text = '[tool.lazyck]\nblobs = ["*/gen/*"]\ntmp-dir = "t"\ninstall-dir = "out"\nname = "mine"\n'
    where = project(tmp_path / "p", text)
    done = lazyck(*BUILD, cwd=where)
    assert done.returncode == 0, done.stderr
    assert "1 lazy with 1 symbol" in done.stderr
    assert (where / "t" / "options.json").is_file() and (where / "out" / "libk.so").is_file()
    by_hand = lazyck(*BUILD[:2], "--install-dir", where / "else", *BUILD[2:], cwd=where)
    assert by_hand.returncode == 0, by_hand.stderr
    assert (where / "else" / "libk.so").is_file()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('blob = ["x"]', "[tool.lazyck] has no option 'blob'\n  hint: did you mean blobs?"),
        ('blobs = "x"', "[tool.lazyck] blobs: must be a list of strings"),
        ('check = "yes"', "[tool.lazyck] check: must be true or false"),
        ("jobs = 0", "'--jobs': 0 is not in the range"),
        ("blobs = [", "lazyck looks there for [tool.lazyck]; repair the file"),
    ],
)
def test_a_projects_file_that_makes_no_sense_is_an_error(lazyck: Lazyck, tmp_path: Path, text: str, said: str) -> None:
    done = lazyck(*BUILD, cwd=project(tmp_path / "p", f"[tool.lazyck]\n{text}\n"))
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert not (tmp_path / "p" / "k.o").exists()


def test_the_environments_number_of_jobs_comes_before_the_projects(lazyck: Lazyck, tmp_path: Path) -> None:
    where = project(tmp_path / "p", '[tool.lazyck]\njobs = 3\nblobs = ["*/gen/*"]\ntmp-dir = "t"\n')
    for env, jobs in (({}, 3), ({"LAZYCK_JOBS": "2"}, 2)):
        assert lazyck(*BUILD, cwd=where, env=env).returncode == 0
        assert json.loads((where / "t" / "options.json").read_text())["jobs"] == jobs


def test_a_build_runs_no_more_jobs_than_it_may_use_cores(lazyck: Lazyck, tmp_path: Path) -> None:
    where = project(tmp_path / "p", '[tool.lazyck]\nblobs = ["*/gen/*"]\ntmp-dir = "t"\n')
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(own)})
    try:  # PYTHONUTF8 differs from the test server's, so that this process starts the command
        done = lazyck(*BUILD, cwd=where, env={"PYTHONUTF8": "1"})
    finally:
        os.sched_setaffinity(0, own)
    assert done.returncode == 0, done.stderr
    assert json.loads((where / "t" / "options.json").read_text())["jobs"] == 1


def test_a_number_of_jobs_that_makes_no_sense_is_an_error(lazyck: Lazyck, tmp_path: Path) -> None:
    done = lazyck(*BUILD, cwd=project(tmp_path / "p", "[tool.lazyck]\n"), env={"LAZYCK_JOBS": "5000"})
    assert done.returncode == 2
    assert "LAZYCK_JOBS='5000': must be a number from 1 to 4096" in done.stderr


@pytest.mark.parametrize(
    ("words", "meant"), [(["buidl"], "build"), (["prebild"], "prebuild"), (["cache", "lst"], "list")]
)
def test_a_misspelt_command_is_told_the_nearest(lazyck: Lazyck, words: list[str], meant: str) -> None:
    done = lazyck(*words)
    assert done.returncode == 2
    assert f"Did you mean '{meant}'?" in done.stderr


def test_blobs_are_named_by_patterns_everywhere(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("bwd_*\n")
    listed = lazyck("prebuild", "list", "--manifest", bundle.file, "fwd_?").stdout
    assert listed == "fwd_a\t-\nfwd_b\t-\n"
    built = lazyck("prebuild", "build", "--manifest", bundle.file, "--blob-list", names)
    assert built.returncode == 0, built.stderr
    assert bundle.compiled() == ["bwd_a"]


@pytest.mark.parametrize("way", ["argument", "pattern", "list"])
def test_a_name_that_fits_nothing_is_an_error_with_the_nearest(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path, way: str
) -> None:
    names = tmp_path / "names"
    names.write_text("fwd_a\nfwd_aa\n")
    words = {"argument": "fwd_a fwd_aa", "pattern": "fwd_a fwdd_*", "list": f"--blob-list {names}"}[way]
    done = lazyck("prebuild", "build", "--manifest", bundle.file, *words.split())
    assert done.returncode == 1
    assert ("fwd_aa (did you mean fwd_a?)" if way != "pattern" else "fwdd_*") in done.stderr
    assert bundle.compiled() == []
