"""Check any server over HTTP alone: whether it implements the wire, and whether its verdicts can be
trusted.

    python -m env_server conformance --url http://127.0.0.1:8000

`hostile/` holds the hostile queries, as data. Nothing here imports the server, so that other
implementations can be checked.
"""
