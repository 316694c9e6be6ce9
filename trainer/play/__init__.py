"""`python -m trainer play`: an agent answers questions about a user's own database.

database.py   a data directory of the user's file, which is only read
names.py      the names in a question that nothing in it contains
agent.py      the player: a local model or one behind an OpenAI-compatible server
retry.py      another action in place of one that failed before
played.py     a played question: its steps and whether its answer is confirmed
display.py    what the user sees of it
session.py    the questions, one after another, on a server that hosts them
command.py    the command's options
"""
