"""Questions about any SQLite database, made from its schema and contents."""
