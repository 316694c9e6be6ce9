"""The application for other ASGI servers (`uvicorn env_server.asgi:app`) and openenv.yaml.

`python -m env_server` also limits what connections may send and hold.
"""

from env_server.app import create_app

app = create_app()
