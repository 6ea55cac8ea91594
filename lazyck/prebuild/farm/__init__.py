"""Spread compiles over the workers of a dask.distributed cluster (`lazyck prebuild build
--executor`)."""
