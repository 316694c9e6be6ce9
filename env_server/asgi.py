"""The application for other ASGI servers (`uvicorn env_server.asgi:app`) and openenv.yaml.

These may listen on any address, so the operator's pages are closed without an operator's key. In a
Space of Hugging Face, whose name is in SPACE_HOST, it answers under that name too.
"""

import os

from env_server.app import create_app
from env_server.settings import Settings

settings = Settings()
hosts = ",".join(filter(None, (settings.hosts, os.environ.get("SPACE_HOST"))))
app = create_app(settings.model_copy(update={"host": "", "hosts": hosts}))
