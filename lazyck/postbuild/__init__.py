"""Turns an intercepted link into a lazy library: probe, stubs, bundle, manifest, link."""
