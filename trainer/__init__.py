"""The TRL side of SQLEnv: rollouts over HTTP, rewards, GRPO training. Never imports env_server."""
