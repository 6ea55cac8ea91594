"""`lazyck-remote`, the program that a lazy library starts for what needs a network. It is not for
users. (docs/remote.md describes the lines that it exchanges with the library.)

    lazyck-remote entry …     fetches an entry from the remote caches, and sends it there
    lazyck-remote compile …   has an entry compiled by the service that LAZYCK_REMOTE_COMPILE names
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from lazyck import abi
from lazyck.remote import helper
from lazyck.remote.helper import Caller
from lazyck.settings.environment import environment


def main() -> NoReturn:
    helper.run(_prepare)


def _prepare(words: Sequence[str]) -> Callable[[Caller], None]:
    if words[:1] != [abi.REMOTE_COMPILE]:
        return partial(helper.serve, helper.parse(words))
    from lazyck.prebuild.service import compile_elsewhere, parse  # much to import, and rarely needed

    wanted = parse(words[1:])
    return lambda caller: compile_elsewhere(wanted, caller, environment())


if __name__ == "__main__":
    main()
