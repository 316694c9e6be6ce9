"""Data sets of others, brought into SQLEnv's format: one file a source."""
