"""Controls of one finished run, its success by form of question, and several seeds side by side: is
the gain due to RL, what is learned, and is it stable?

python -m benchmarks.learning controls --run runs/latest
python -m benchmarks.learning forms --run runs/latest
python -m benchmarks.learning seeds runs/A runs/B runs/C
"""
