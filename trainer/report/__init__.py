"""A run, an evaluation, a comparison or a list of runs as one self-contained HTML page.

`run_reader` reads a run's folder; `curves`, `tables` and `groups` work out what is shown; `svg` and
`shell` make markup of it, `questions` and `browser` the lists of episodes; `page`,
`evaluation_page`, `comparison` and `listing` fill the templates; `command` is the command line.
"""
