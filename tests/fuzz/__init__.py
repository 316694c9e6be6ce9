"""Fuzzing of actions, SQL text and requests: properties that hold for any input.

    properties.py           properties of every action and statement; used by both engines
    strategies.py           hypothesis: statements from a grammar, and mutated hostile ones
    test_hypothesis.py      property-based
    coverage_guided.py      the atheris target, a program guided by the coverage of this code
    test_coverage_guided.py runs it, briefly and long

`make test` runs each briefly and reproducibly, `make test-all` long and with another seed.
"""
