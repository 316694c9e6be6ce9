"""Imports of users' files and databases and of public data sets: a reader per source."""
