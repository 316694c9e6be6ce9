"""What a policy does, beside how often it is right: answering, looking first, repeating itself.
Pure functions."""

from collections.abc import Sequence
from typing import Any

from shared.actions import ActionType, render_action
from shared.models import Outcome
from trainer.rollout.parsing import parse_model_output
from trainer.run.records import Episode

ANSWERED = frozenset({Outcome.CORRECT, Outcome.WRONG})  # the outcomes of an ANSWER


def canonical_actions(episode: Episode) -> list[str]:
    """The episode's actions as the environment was sent them, in order: `TYPE: argument`."""
    return [render_action(parse_model_output(turn.action).action) for turn in episode.turns]


def describes_first(episode: Episode) -> bool:
    """Whether the first action is a DESCRIBE. False without any action."""
    return next(iter(canonical_actions(episode)), "").startswith(f"{ActionType.DESCRIBE}: ")


def repeats(episode: Episode) -> int:
    """How many actions are, by their canonical text, those of an earlier step of the same episode."""
    actions = canonical_actions(episode)
    return len(actions) - len(set(actions))


def behaviour(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Shares in [0, 1] and means an episode, over the episodes that the infrastructure didn't lose.

    `answered`: those that gave an ANSWER; `accuracy_when_answered`: the right ones among these;
    `describe_first`: those that began with a DESCRIBE; `steps`, `repeats` and `errors` (actions
    that the environment answered with an error): means; `truncated`: those that outgrew the context
    window and went on with a part of their history. `n` episodes, `n_answered` of them answered.
    None is what nothing was measured of.
    """
    played = [episode for episode in episodes if episode.finished]
    answered = [episode for episode in played if episode.outcome in ANSWERED]
    return {
        "n": len(played),
        "n_answered": len(answered),
        "answered": _mean([episode.outcome in ANSWERED for episode in played]),
        "accuracy_when_answered": _mean([episode.correct for episode in answered]),
        "describe_first": _mean([describes_first(episode) for episode in played]),
        "steps": _mean([episode.steps for episode in played]),
        "repeats": _mean([repeats(episode) for episode in played]),
        "errors": _mean([episode.env_errors for episode in played]),
        "truncated": _mean([episode.context_truncations > 0 for episode in played]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
