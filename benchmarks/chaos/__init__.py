"""Real servers that are killed, stopped, restarted and cut off while episodes are played."""
