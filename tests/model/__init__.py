"""A model of how lazyck locks, compiles and publishes, searched exhaustively for small numbers of processes."""
