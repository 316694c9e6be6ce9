"""Questions about any SQLite database, made from its schema and contents.

names.py      names of tables and columns as English words
schema.py     a database as a `Domain`: what each column is for, and how tables refer to each other
questions.py  questions drawn by the templates of data/domains, filtered, split and imported
"""
