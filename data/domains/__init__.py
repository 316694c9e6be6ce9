"""Domains: what a database is about. Written by hand for the shipped ones (`shipped/`), drawn from
a seed else.

A `Domain` (spec.py) says tables, columns and the words a question uses for them; `values.py` makes
cells, `populate.py` fills and writes a database, `templates/` asks questions of it,
`demonstrations.py` scripts how an agent answers them, `fresh.py` draws a domain from a seed.
"""
