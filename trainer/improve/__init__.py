"""Expert iteration: a model plays, learns from what was right and from mended failures, and plays
again."""
