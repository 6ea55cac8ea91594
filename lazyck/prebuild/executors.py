"""Choose who carries out a plan elsewhere: a cluster of dask, or a compile service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lazyck.manifest import Manifest
from lazyck.prebuild.plan import Outcome, Plan
from lazyck.prebuild.progress import Reporter
from lazyck.prebuild.reapi.endpoint import is_endpoint


def build_on(
    executor: str, manifest_file: Path, manifest: Manifest, plan: Plan, env: Mapping[str, str], reporter: Reporter,
    *, named_by: str, jobs: int | None, keeps_going: bool,
) -> Outcome:  # fmt: skip
    """Carry out the plan by the executor of this URL, which the user gave as the value of
    `named_by`. Raises `LazyckError`."""
    # Each needs libraries that not everybody has, so it is imported when it is used.
    if is_endpoint(executor):
        from lazyck.prebuild.reapi.build import ServiceOptions, build_on_service

        service = ServiceOptions(executor, named_by, jobs, keeps_going)
        return build_on_service(manifest_file, manifest, plan, service, env, reporter)
    from lazyck.prebuild.farm.build import FarmOptions, build_on_farm

    return build_on_farm(manifest_file, manifest, plan, FarmOptions(executor, jobs, keeps_going), env, reporter)
