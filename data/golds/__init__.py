"""Gold queries: run them and reject those without one answer that an agent can be shown."""
