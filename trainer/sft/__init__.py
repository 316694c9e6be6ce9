"""Supervised warm start: imitate demonstrations before reinforcement learning."""
