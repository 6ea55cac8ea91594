"""Tests `lazyck cache stats --prometheus`, and the rules and the dashboard that operators get for
it."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from support import REPOSITORY, Lazyck
from support.bundles import Bundle, build, make_bundle
from support.cache_histories import event, said, write_history

from lazyck.cache.stats import METRICS

DEPLOY = REPOSITORY / "examples" / "deploy"
PAGE = (REPOSITORY / "docs" / "operating.md").read_text()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "lazyck-cache"


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "b", ["one", "two"], archs=["gfx942", "gfx9-4-generic"])


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def values(found: dict[str, Metric]) -> dict[tuple[str, str, str], float]:
    """Return the values of the samples by metric, library and arch."""
    samples = [s for family in found.values() for s in family.samples]
    rows = {(s.name, s.labels.get("library", ""), s.labels.get("arch", "")): s.value for s in samples}
    assert len(rows) == len(samples)
    return rows


def test_metrics_are_those_of_the_json_in_base_units(lazyck: Lazyck, bundle: Bundle, cache: Path) -> None:
    build(lazyck, bundle, "--all")
    now = time.time()
    write_history(
        cache, event("compile", "one", 20.5, library="libtiny", t=now), event("load", "one", 0.1, "cache", t=now),
        event("compile", "two", 3.0, "no", failed=True, t=now), event("wait", "one", 1.25, "compile", t=now),
        event("load", "x", 0.1, "remote https://c", library='a"b\\c', arch="gfx9-4-generic", t=now),
    )  # fmt: skip
    env = {"LAZYCK_CACHE_MAXSIZE": "3G"}
    text = said(lazyck, "stats", "--prometheus", env=env)
    found, raw = families(text), json.loads(said(lazyck, "stats", "--json", env=env))
    by_json = {
        "lazyck_cache_entries": "entries", "lazyck_cache_entry_bytes": "bytes", "lazyck_cache_hits_total": "hits",
        "lazyck_cache_fetched_total": "fetched", "lazyck_cache_misses_total": "misses",
        "lazyck_cache_failures_total": "failures", "lazyck_cache_waits_total": "waits",
        "lazyck_cache_compile_seconds_total": "seconds_spent", "lazyck_cache_saved_seconds_total": "seconds_saved",
        "lazyck_cache_wait_seconds_total": "seconds_waited",
    }  # fmt: skip
    expected = {(m, s["library"], s["arch"]): s[key] for m, key in by_json.items() for s in raw["shares"]}
    assert len(expected) == 40 and ("lazyck_cache_fetched_total", 'a"b\\c', "gfx9_4_generic") in expected
    for name, key in (("preambles", "preambles"), ("preamble_bytes", "preamble_bytes"), ("used_bytes", "used_bytes"),
                      ("limit_bytes", "max_bytes"), ("since_timestamp_seconds", "since")):  # fmt: skip
        expected[f"lazyck_cache_{name}", "", ""] = raw[key]
    assert values(found) == expected
    assert {s.labels["cache"] for family in found.values() for s in family.samples} == {str(cache)}
    for name, family in found.items():
        is_counter = any(s.name.endswith("_total") for s in family.samples)
        assert family.type == ("counter" if is_counter else "gauge") and family.documentation, name


def test_what_there_is_none_of_has_no_line(lazyck: Lazyck, cache: Path) -> None:
    done = lazyck("cache", "stats", "--prometheus", env={"LAZYCK_CACHE_MAXSIZE": "0"})
    assert done.returncode == 0 and f"no cache at {cache} yet" in done.stderr
    assert values(families(done.stdout)) == {
        (f"lazyck_cache_{n}", "", ""): 0.0 for n in ("preambles", "preamble_bytes", "used_bytes")
    }
    assert "--json and --prometheus exclude each other" in said(lazyck, "stats", "--prometheus", "--json", status=2)


# -- what operators are given ----------------------------------------------------------------------


@pytest.fixture
def printed(lazyck: Lazyck, bundle: Bundle) -> dict[str, set[str]]:
    """Return the labels of each metric that is printed."""
    build(lazyck, bundle, "one")
    found = families(said(lazyck, "stats", "--prometheus"))
    return {s.name: set(s.labels) for family in found.values() for s in family.samples}


def check_query(query: str, printed: dict[str, set[str]], *others: str) -> None:
    """Check that a query uses only metrics that exist, by labels that they have. `others` are
    metrics of other programs."""
    names = set(re.findall(r"\b(?:lazyck|node)_\w+", query))
    assert names and names - set(others) <= set(printed), query
    labels = {"instance", "job", "file"}.union(*(printed[n] for n in names & set(printed)))
    used = re.findall(r"(\w+)=~?\"", query) + re.findall(
        r"\w+", " ".join(re.findall(r"\b(?:by|on) \(([^)]*)\)", query))
    )
    assert set(used) <= labels, query


def test_rules_ask_for_metrics_that_are_printed(printed: dict[str, set[str]]) -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus-rules.yaml").read_text())
    (group,) = rules["groups"]
    assert set(group) == {"name", "rules"}
    for rule in group["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[mh]", rule["for"])
        check_query(rule["expr"], printed, "node_textfile_mtime_seconds")
        templated = re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values()))
        by = re.search(r"by \(([^)]*)\)", rule["expr"])
        kept = set(re.findall(r"\w+", by[1])) if by else {"instance", "cache", "file"}
        assert set(templated) <= kept, rule["alert"]
        assert f"`{rule['alert']}`" in PAGE
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names)


def test_the_dashboard_asks_for_metrics_that_are_printed(printed: dict[str, set[str]]) -> None:
    board: dict[str, Any] = json.loads((DEPLOY / "grafana-lazyck.json").read_text())
    panels = board["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids) >= 6
    assert board["id"] is None and board["uid"] and board["schemaVersion"] >= 36
    places = [(x, y) for p in panels for g in [p["gridPos"]]
              for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])]  # fmt: skip
    assert len(set(places)) == len(places) and max(x for x, _ in places) < 24
    variables = {v["name"]: v for v in board["templating"]["list"]}
    assert set(variables) == {"datasource", "instance", "cache"}
    for variable in ("instance", "cache"):
        check_query(variables[variable]["query"]["query"], printed)
    asked = set()
    for panel in panels:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert refs and len(set(refs)) == len(refs)
        for target in panel["targets"]:
            check_query(target["expr"], printed)
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= {*variables, "__range"}
            asked |= set(re.findall(r"lazyck_\w+", target["expr"]))
    assert asked == set(printed) - {"lazyck_cache_preambles", "lazyck_cache_preamble_bytes"}


def test_the_page_explains_each_metric(printed: dict[str, set[str]]) -> None:
    rows = re.findall(r"^\| (`lazyck_.*?) \|", PAGE, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(lazyck_\w+)`", row)} == set(printed)
    assert set(METRICS) < set(printed)


def lost(before: object, after: object, place: str = "") -> list[str]:
    """Return the places in which `after` lacks what `before` has."""
    if isinstance(before, dict) and isinstance(after, dict):
        pairs = [(f"{place}/{key}", before[key], after.get(key)) for key in before]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = [(f"{place}/{i}", *each) for i, each in enumerate(zip(before, after, strict=True))]
    else:
        return [] if before == after else [place]
    return [found for where, old, new in pairs for found in lost(old, new, where)]


def test_grafanas_own_model_of_a_dashboard_loads_it_and_loses_nothing() -> None:
    register_default_plugins()
    text = json.loads((DEPLOY / "grafana-lazyck.json").read_text())
    loaded = json.loads(JSONEncoder().encode(Dashboard.from_json(text)))
    assert text["panels"] and lost(text, loaded) == []
