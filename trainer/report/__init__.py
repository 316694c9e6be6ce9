"""A run, an evaluation, a comparison or a list of runs as one self-contained HTML page.

`run_reader` reads a run's folder; `curves`, `tables`, `ledger` and `groups` work out what is shown;
`svg`, `formats` and `markup` make markup of numbers, actions and observations; `questions` and
`browser` make the lists of episodes; `page`, `evaluation_page`, `comparison` and `listing` fill the
templates, which share `shell`; `command` is the command line.
"""
