"""The environment server: episodes of SQL exploration over HTTP. `env_server.environment` works
without the service."""
