"""Check any server over HTTP alone: whether it implements the wire, and whether its verdicts can be
trusted.

    python -m env_server conformance --url http://127.0.0.1:8000

    hostile/         the hostile queries, as data
    corpus.py        `HostileQuery`, read from these files
    wire.py          `Wire`: requests; replies as bytes and JSON
    check.py         `Check`, `CheckResult`, `run`
    episodes.py      shapes, play, idempotent steps, replay
    determinism.py   the same bytes in any situation
    errors.py        the one error shape, batches
    gold.py          no gold in replies
    jail.py          the hostile queries, and that other episodes are answered meanwhile
    command.py       the command and its tables

Nothing here imports the server, so that other implementations can be checked.
"""
