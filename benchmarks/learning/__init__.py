"""Measure a finished run: is its gain due to RL, what did it learn, and is it stable?"""
