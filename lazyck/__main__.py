"""`python -m lazyck` is the `lazyck` command."""

from lazyck.cli import main

main()
