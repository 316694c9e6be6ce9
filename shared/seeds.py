"""The random seeds of the commands."""

# Of every command that draws at random, except those whose published results have another seed
# (the benchmarks; the shipped base model's pretraining) and evaluation, whose random streams must
# not be those of training.
DEFAULT_SEED = 42
# the evaluations' random streams: the same before and after, and not those of training
EVAL_SEED = 1_000_003
MAX_SEED = 2**32 - 1  # numpy's generators take 32 bits
