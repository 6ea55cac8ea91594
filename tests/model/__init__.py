"""Model how lazyck locks, compiles and publishes. The model is searched exhaustively for small
numbers of processes."""
