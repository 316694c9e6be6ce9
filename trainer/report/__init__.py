"""A run, an evaluation or a list of runs as one self-contained HTML page.

`run_reader` reads a run's folder; `curves`, `tables` and `groups` work out what is shown; `page`,
`evaluation_page` and `listing` fill the templates; `command` is the command line.
"""
