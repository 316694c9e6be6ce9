"""`python -m trainer play`: an agent answers questions about a user's own database.

    database.py   a data directory of the user's file, for an environment server
    agent.py      the player: a local model or one behind an OpenAI-compatible server
    session.py    one question: the episode, step by step
    display.py    what the user sees of it
    questions.py  one question after another, on a server that hosts them
    command.py    the command's options

The user's file is only read.
"""
