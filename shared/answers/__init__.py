"""Read the text of an answer, for the verdicts and for votes: its cells, numbers and dates."""
