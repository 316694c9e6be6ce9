"""A run or an evaluation as one self-contained HTML page."""
