"""Domains: what a database is about, its cells, and questions on it."""
