"""An agent on a database of the user's own, without gold: `python -m trainer play`.

    database.py   from the user's file to a data directory that a server can host
    agent.py      who plays: a model of this machine or one behind an OpenAI-compatible server
    session.py    one question: the episode, step by step
    show.py       what the user sees of it
    questions.py  one question after the other, on a server that hosts them
    command.py    the command's options

The user's file is only ever read.
"""
