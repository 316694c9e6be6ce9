"""A run as one self-contained HTML page.

`source` reads the folder; `curves`, `tables`, `ledger`, `groups` and `pairs` work out what is
shown; `charts`, `formats` and `shown` make markup of numbers, actions and observations; `page`
fills the templates; `command` is the command line.
"""
