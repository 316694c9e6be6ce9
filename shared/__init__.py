"""What the environment server and the trainer both speak. Imports neither side, and neither torch
nor FastAPI."""
