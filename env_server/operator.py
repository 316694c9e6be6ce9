"""What the people who run a server may see and no agent: `/operator/...`. Nothing here is gold data.

An agent's driver must not show these replies to its agent: a verdict by another standard is a hint for the next try.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic_core import to_json

from env_server.http import ErrorReply, json_reply, service_of
from shared.models import EpisodeVerdicts, VerdictTotals

operator = APIRouter(prefix="/operator", tags=["operator"])


@operator.get("/verdicts", response_model=VerdictTotals, responses={503: {"model": ErrorReply}})
async def verdict_totals(request: Request) -> Response:
    """How many answers each standard calls right, those given as SQL apart. Training uses `training_standard`."""
    return json_reply(to_json(service_of(request).pool.verdict_totals()))


@operator.get(
    "/verdicts/{episode_id}",
    response_model=EpisodeVerdicts,
    responses={status: {"model": ErrorReply} for status in (404, 409, 422, 503)},
)
async def verdicts(request: Request, episode_id: Annotated[str, Path(description="as the reset said")]) -> Response:
    """An ended episode's answer by every standard, side by side."""
    return json_reply(await service_of(request).pool.verdicts(episode_id))
