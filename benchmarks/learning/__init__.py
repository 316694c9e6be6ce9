"""Is the gain real, and is it reinforcement learning's? Controls of one finished run, and several
seeds side by side.

python -m benchmarks.learning controls --run runs/latest
python -m benchmarks.learning seeds runs/A runs/B runs/C
"""
