"""What a training run shows while it runs.

`callback` measures and keeps the record, `snapshot` holds what is shown, `displays` brings it to a
notebook, a terminal (`terminal`) or files.
"""
