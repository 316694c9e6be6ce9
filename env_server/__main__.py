"""The environment server's command line: `python -m env_server`, or `sqlenv serve`."""

from shared.console import packages_needed

with packages_needed("server"):
    from env_server.commands import command

if __name__ == "__main__":
    command()
