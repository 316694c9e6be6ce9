"""`SQLEnv`, a typed client of OpenEnv's. Needs openenv 0.10 or openenv-core 0.3."""

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult

from shared.actions import AnyAction, as_action
from shared.models import SQLObservation, SQLState


class SQLEnv(EnvClient[AnyAction, SQLObservation, SQLState]):  # type: ignore[misc]
    """OpenEnv's client with this environment's types; an action may be its text form or a dict.

    async with SQLEnv(base_url="http://127.0.0.1:8000") as env:
        first = await env.reset(difficulty="easy", seed=7)
        reply = await env.step(f"DESCRIBE: {first.observation.tables[0]}")

    `reset` takes the fields of `ResetRequest`, and `resume=True` with the `episode_id` of an
    episode whose connection was lost. `.sync()` gives the same methods without await.
    """

    def _step_payload(self, action: AnyAction) -> dict[str, Any]:
        return as_action(action).model_dump(mode="json")

    def _parse_result(self, payload: dict[str, Any]) -> Any:
        observation = SQLObservation.model_validate(payload["observation"])
        result = StepResult(observation, payload["reward"], payload["done"])
        if hasattr(result, "metadata"):  # openenv 0.10
            result.metadata = payload["metadata"]
        return result

    def _parse_state(self, payload: dict[str, Any]) -> SQLState:
        return SQLState.model_validate(payload)
