"""Can the reward be farmed? Policies that try, each under a stated bound, and an oracle that gets
all it should.

python -m benchmarks.reward_hacking [--data DIR] [--every N] [--out PATH]
"""
