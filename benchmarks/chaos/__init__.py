"""Real servers that are killed, stopped, restarted and cut off while episodes are played on them.

`benchmarks/faults.py` measures with it and `tests/faults/` tests with it.
"""
