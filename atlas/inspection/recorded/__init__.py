"""Recorded runs: one format of files for a run's tokens and chosen tensors, for static sites and for bundles."""
