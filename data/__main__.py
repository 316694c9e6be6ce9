"""The command line of data sets: `python -m data`, or `sqlenv data`."""

from shared.console import packages_needed

with packages_needed("server"):
    from data.commands import app

if __name__ == "__main__":
    app()
