"""`python -m lazyck` is the `lazyck` command."""

from _lazyck.cli import main

main()
