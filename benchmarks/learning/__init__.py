"""Controls of one finished run, and several seeds side by side: is the gain due to RL, and stable?

python -m benchmarks.learning controls --run runs/latest
python -m benchmarks.learning seeds runs/A runs/B runs/C
"""
