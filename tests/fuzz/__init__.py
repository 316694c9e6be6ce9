"""Fuzzing of actions, SQL text and requests: properties that hold whatever is sent.

    properties.py           what must hold of an action and of a statement; used by both engines
    strategies.py           hypothesis: statements by a grammar, and hostile ones changed
    test_hypothesis.py      property-based
    coverage_guided.py      the atheris target, a program guided by the coverage of this code
    test_coverage_guided.py runs it, shortly and long

`make test` runs each shortly and reproducibly, `make test-all` long and with another seed each
time.
"""
