"""Measurements and long tests on a running server. A real package, since fairscale installs another `benchmarks`."""
