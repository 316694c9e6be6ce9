"""What a model reads, for a loop of your own: docs/your-loop.md."""

from dataclasses import dataclass

from shared.models import SQLObservation, StepResult
from trainer.config.settings import GRPOConfig
from trainer.rollout.prompts import format_observation, get_system_prompt
from trainer.runtime.models import preset_of

__all__ = ["Prompt", "format_observation", "get_system_prompt", "prompt_of"]


@dataclass(frozen=True)
class Prompt:
    """What a model reads. `kind` is the setting `system_prompt`: full, short, or a text."""

    kind: str = "full"

    @property
    def system(self) -> str:
        """The system prompt."""
        return get_system_prompt(self.kind)

    def message(self, reply: SQLObservation | StepResult) -> str:
        """Return the user message that shows a reply: see `format_observation`."""
        return format_observation(reply, self.kind)


def prompt_of(model: str) -> Prompt:
    """Return what a model was trained to read, by its folder or name; the full prompt for a model
    that this trainer did not train."""
    choice = preset_of(model)
    return Prompt(GRPOConfig.preset(choice.preset, **choice.settings).system_prompt)
