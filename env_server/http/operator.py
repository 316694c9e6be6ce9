"""What a server's operators may see and agents may not: `/operator/...`, `/metrics`. No gold data.

An agent's driver must not show these replies to its agent: a verdict by another standard is a hint
for the next try.
"""

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from env_server.http.auth import caller_of
from env_server.http.openapi import errors
from env_server.http.responses import json_reply
from env_server.http.routes import EpisodePath
from env_server.http.work import service_of
from env_server.telemetry import CONTENT_TYPE
from shared.models import EpisodeVerdicts, VerdictTotals

operator = APIRouter(tags=["operator"])


@operator.get(
    "/metrics", response_class=Response, responses=errors() | {200: {"content": {"text/plain": {}}}}
)
async def metrics(request: Request) -> Response:
    """Return the server's metrics in Prometheus's format."""
    return Response(request.app.state.metrics.text(), headers={"content-type": CONTENT_TYPE})


@operator.get("/operator/verdicts", response_model=VerdictTotals, responses=errors(503))
async def verdict_totals(request: Request) -> Response:
    """Count the answers that each standard calls right; SQL answers are counted separately.

    `standard` is the one that decides outcomes and rewards.
    """
    return json_reply(to_json(service_of(request).pool.answers.totals()))


@operator.get(
    "/operator/verdicts/{episode_id}",
    response_model=EpisodeVerdicts,
    responses=errors(404, 409, 422, 503),
)
async def verdicts(request: Request, episode_id: EpisodePath) -> Response:
    """Return the verdict of every standard on an ended episode's answer."""
    return json_reply(await service_of(request).pool.verdicts(episode_id, caller_of(request)))
