"""The application for other ASGI servers (`uvicorn env_server.asgi:app`) and openenv.yaml.

`python -m env_server` also limits what connections may send and hold. Another server may listen on
any address, whatever `SQLENV_HOST` is: without an operator's key its operator's pages are closed.
"""

from env_server.app import create_app
from env_server.settings import Settings

app = create_app(Settings().model_copy(update={"host": ""}))
