"""An agent on a database of the user's own, without gold: `python -m trainer play`.

database.py   from the user's file to a data directory that a server can host; the file is only read
agent.py      who plays: a model of this machine or one behind an OpenAI-compatible server
session.py    one question: the episode, step by step
show.py       what the user sees of it
command.py    the command: options, the server, one question after the other
"""
