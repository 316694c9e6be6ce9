"""Demonstrations: scripts played against a server, as token rows with a mask of what to learn."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from shared.models import Outcome
from trainer.config.settings import GRPOConfig
from trainer.rollout.loop import EpisodeClient, play_scripted
from trainer.rollout.prompts import ERROR
from trainer.rollout.row import RolloutRow
from trainer.rollout.vote import attempt_of
from trainer.sft.scripts import Script
from trainer.sft.sources import balanced

CHUNK = 512  # scripts played at once
# why a script is not taught
OVER_BUDGET, NOT_CORRECT = "over the step budget", "not correct"
NOT_AGREED = "without the answer of the majority"
LONG_ROW = "longer than the context window"
LONG_TURN = "with an action longer than max_new_tokens"


@dataclass(frozen=True)
class Demonstration:
    """One right episode. `learn` is 1 at the ids that the loss counts: see `taught`."""

    source: str
    question_id: str
    database: str
    actions: list[str]
    ids: list[int] = field(repr=False)
    learn: list[int] = field(repr=False)


def taught(row: RolloutRow, context: int = 0) -> list[int]:
    """Return 1 for every id of the demonstrator, [P + C], but 0 in the first `context` actions, and
    in actions that the environment answered with an error: what is learned is to recover from it.
    """
    replies = [*row.read[1:], *[""] * len(row.texts)]
    mask: list[int] = []
    turn = -1
    for own, run in groupby(row.learn_mask):
        turn += own
        left_out = own and (turn < context or replies[turn].startswith(ERROR))
        mask += [0 if left_out else own] * len(list(run))
    return mask


def problem_of(row: RolloutRow, script: Script, config: GRPOConfig, window: int) -> str | None:
    if script.label is not None and attempt_of(row).key != script.label:
        return NOT_AGREED
    if script.label is None and row.outcome != Outcome.CORRECT:
        return NOT_CORRECT
    if len(row.ids) > window:
        return LONG_ROW
    turns = (len(list(run)) for one, run in groupby(taught(row, script.context)) if one)
    return LONG_TURN if max(turns, default=0) > config.max_new_tokens else None


def demonstrate(
    scripts: Iterable[Script],
    wanted: int,
    tokenizer: Any,
    config: GRPOConfig,
    window: int,
    client: EpisodeClient,
) -> tuple[list[Demonstration], Counter[str]]:
    """Play scripts, balanced over databases, until `wanted` may be taught; 0: all of them. Return
    these and the counts of dropped scripts by reason. `window`: length of the longest row."""
    kept: list[Demonstration] = []
    dropped: Counter[str] = Counter()
    pending = []
    for script in balanced(scripts, config.seed):
        if len(script.actions) > config.step_budget:
            dropped[OVER_BUDGET] += 1
        else:
            pending.append(script)
    while pending and not (wanted and len(kept) >= wanted):
        size = min(CHUNK, wanted - len(kept)) if wanted else CHUNK
        chunk: dict[str, Script] = {}  # a question's other scripts wait for the next chunk
        later = []
        for script in pending:
            if len(chunk) < size and script.question_id not in chunk:
                chunk[script.question_id] = script
            else:
                later.append(script)
        pending = later
        played = play_scripted(
            {question_id: script.actions for question_id, script in chunk.items()},
            tokenizer,
            config,
            client,
        )
        for row in played:
            script = chunk[row.question_id]
            if (problem := problem_of(row, script, config, window)) is not None:
                dropped[problem] += 1
                continue
            about = (script.source, script.question_id, script.database, list(script.actions))
            kept.append(Demonstration(*about, row.ids, taught(row, script.context)))
    return kept, dropped
