"""Checkpoints, reference code, the recorder, runs and replay. One thread owns the model."""
