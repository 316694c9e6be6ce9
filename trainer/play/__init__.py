"""An agent answers questions about a user's own database: `python -m trainer play`."""
