"""Read the text of an answer, its cells, numbers and dates: for verdicts, votes and imports."""
