"""Measure a finished run: is its gain due to RL, what did it learn, and is it stable?

python -m benchmarks.learning controls --run runs/latest
python -m benchmarks.learning ablations --run runs/latest
python -m benchmarks.learning forms --run runs/latest
python -m benchmarks.learning seeds runs/A runs/B runs/C
python -m benchmarks.learning publish --run runs/latest
"""
