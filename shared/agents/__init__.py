"""The environment as other frameworks know it: OpenEnv, Gymnasium, TRL's tools.

Each module needs its framework and a running server. docs/api.md says which one to choose.
"""
