"""The application for other ASGI servers (`uvicorn env_server.asgi:app`) and openenv.yaml.

These may listen on any address, so the operator's pages are closed without an operator's key.
"""

from env_server.app import create_app
from env_server.settings import Settings

app = create_app(Settings().model_copy(update={"host": ""}))
