"""Whether a server speaks the wire, and whether its verdicts can be trusted: checks over HTTP
alone.

    python -m env_server conformance --url http://127.0.0.1:8000

    hostile.py    the hostile queries, as data (`env_server/conformance/hostile`)
    wire.py       `Wire`: requests, replies as bytes and JSON
    check.py      `Check`, `Finding`, and the run of them
    episodes.py   shapes, play, idempotent steps, replay
    same.py       determinism
    errors.py     the one error shape, batches
    gold.py       no gold in replies
    jail.py       the hostile queries, and that other episodes are answered meanwhile
    report.py     the table
    command.py    the command

Nothing here imports the server, so that it can be pointed at any.
"""
