"""Measure reward hacking: policies that try it, each under a stated bound, and a scripted oracle.

python -m benchmarks.reward_hacking [--data DIR] [--every N] [--json PATH]
"""
