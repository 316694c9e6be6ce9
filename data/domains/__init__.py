"""Domains: what a database is about, its cells, and questions on it.

spec.py            a `Domain`: tables, columns and the words that questions use for them
shipped/           the domains of the shipped databases, one TOML file each, and their rows
fresh.py           a domain drawn from a seed; held_out.py lists what none of them contains
values.py          makers of cells; populate.py fills tables and writes databases
templates/         questions on any domain
demonstrations.py  scripts of how an agent answers a question
words.toml         words of fresh schemas and questions; lexicon.toml: words of cells
"""
