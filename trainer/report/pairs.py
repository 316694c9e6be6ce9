"""The same question before and after training: which questions are shown, and their episodes side
by side."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.report.shown import Action, Observation, cut, shown_action, shown_observation
from trainer.report.source import Record
from trainer.run.console import counted
from trainer.run.folder import to_json
from trainer.run.records import EpisodeRecord
from trainer.run.transcripts import KINDS

EACH_KIND = 6  # questions of a kind that are shown; no other kind takes what one can't fill
TURNS = 30  # of an episode


@dataclass(frozen=True)
class Step:
    """One action with what it showed. `reward` is None where the environment did not answer it."""

    action: Action
    observation: Observation
    reward: float | None
    wrote: str  # the model's own text, where it is not the action's canonical one


@dataclass(frozen=True)
class Play:
    """One episode of a pair, ready to be shown."""

    title: str
    outcome: str
    correct: bool
    reward: float | None
    layers: Mapping[str, float | None]
    steps: Sequence[Step]
    left_out: int
    notes: Sequence[str]


@dataclass(frozen=True)
class Pair:
    kind: str
    question_id: str
    text: str
    database: str
    part: str
    difficulty: str
    before: Play
    after: Play
    random: Play | None
    gold: Mapping[str, Any] | None


@dataclass(frozen=True)
class Kind:
    """One of right or wrong before, right or wrong after. `count` of the eval questions are of it."""

    label: str
    before: bool
    after: bool
    count: int
    shown: int


def kinds_and_pairs(record: Record, mode: str = "greedy") -> tuple[list[Kind], list[Pair]]:
    """How many questions each kind has, and the first `EACH_KIND` of each by a hash of the
    question's id.

    Both empty where the run has no evaluation before or after. Questions that either one lost are
    left out.
    """
    found = {phase: record.evaluations.get(phase, {}).get(mode) for phase in ("before", "after")}
    if found["before"] is None or found["after"] is None:
        return [], []
    before, after = found["before"].by_question(), found["after"].by_question()
    sampled = record.evaluations.get("random", {}).get("sampled")
    random = sampled.by_question() if sampled else {}
    both = sorted(
        (key for key in before if key in after and before[key].finished and after[key].finished),
        key=lambda key: hashlib.sha256(key.encode()).digest(),
    )
    kinds, pairs = [], []
    for label, wanted, _ in KINDS:
        members = [key for key in both if (before[key].correct, after[key].correct) == wanted]
        shown = members[:EACH_KIND]
        kinds.append(Kind(label, *wanted, len(members), len(shown)))
        pairs += [
            _pair(record, label, key, before[key], after[key], random.get(key)) for key in shown
        ]
    return kinds, pairs


def _pair(
    record: Record,
    kind: str,
    key: str,
    before: EpisodeRecord,
    after: EpisodeRecord,
    random: EpisodeRecord | None,
) -> Pair:
    question = record.questions.get(key)
    gold = None
    if question is not None:
        gold = {
            "sql": cut(question.gold_sql, 2_000),
            "answer": cut(_answer(question.gold_answer), 600),
        }
    return Pair(
        kind=kind,
        question_id=key,
        text=cut(record.text(key), 2_000),
        database=before.database,
        part=before.part,
        difficulty=before.difficulty,
        before=played("before training", before),
        after=played("after training", after),
        random=played("random actions", random) if random else None,
        gold=gold,
    )


def _answer(value: Any) -> str:
    """A gold answer as an agent would write it: a scalar alone, a list as JSON."""
    return to_json(value) if isinstance(value, list | dict) else str(value)


def played(title: str, episode: EpisodeRecord) -> Play:
    steps = []
    for index, turn in enumerate(episode.turns[:TURNS]):
        answered = index < len(episode.actions)
        action = episode.actions[index] if answered else turn.action
        steps.append(
            Step(
                action=shown_action(action),
                observation=shown_observation(action, turn.observation),
                reward=episode.rewards[index] if index < len(episode.rewards) else None,
                wrote="" if action == turn.action else cut(turn.action, 600),
            )
        )
    notes = []
    if episode.parse_failures:
        notes.append(
            f"{episode.parse_failures} of its texts were no action and were taken as a QUERY"
        )
    if episode.context_truncations:
        notes.append(
            f"it outgrew the context window {counted(episode.context_truncations, 'time')} and went on with a part"
        )
    if episode.context_overflow:
        notes.append("it ended because the context window was full")
    return Play(
        title=title,
        outcome=episode.outcome,
        correct=episode.correct,
        reward=episode.reward,
        layers={
            name: getattr(episode, name) for name in ("correctness", "progress", "operational")
        },
        steps=steps,
        left_out=max(0, len(episode.turns) - TURNS),
        notes=notes,
    )
