"""`lazyck prebuild build --executor`: compiles spread over the workers of a dask.distributed cluster."""
