"""Choose who carries out a plan elsewhere: a cluster of dask, or a compile service."""

from collections.abc import Mapping
from pathlib import Path

from _lazyck.manifest import Manifest
from _lazyck.prebuild.plan import Outcome, Plan
from _lazyck.prebuild.progress import Reporter
from _lazyck.prebuild.reapi.endpoint import is_endpoint


def build_on(
    executor: str, manifest_file: Path, manifest: Manifest, plan: Plan, env: Mapping[str, str], reporter: Reporter,
    *, named_by: str, jobs: int | None, keeps_going: bool,
) -> Outcome:  # fmt: skip
    """Carry out the plan by the executor of this URL, which the user gave as the value of
    `named_by`. Raises `LazyckError`."""
    # Each needs libraries that not everybody has, so it is imported when it is used.
    if is_endpoint(executor):
        from _lazyck.prebuild.reapi.run import build_on_service

        return build_on_service(
            executor, manifest_file, manifest, plan, env, reporter,
            named_by=named_by, jobs=jobs, keeps_going=keeps_going,
        )  # fmt: skip
    from _lazyck.prebuild.farm.farm import build_on_farm

    return build_on_farm(executor, manifest_file, manifest, plan, env, reporter, jobs=jobs, keeps_going=keeps_going)
