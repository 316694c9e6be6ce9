"""Audit a recorded run: play its episodes again, recompute its results, score it by other rules."""
