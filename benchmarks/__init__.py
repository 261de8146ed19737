"""Measurements and long tests on a running server. A package of its own name: fairscale installs another `benchmarks`."""
