"""The environment as OpenEnv and TRL's tools know it. docs/api.md says what to choose."""
