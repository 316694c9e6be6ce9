"""The questions that the page shows before and after training, episodes side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.report.markup import (
    ActionMarkup,
    ObservationMarkup,
    action_markup,
    cut,
    observation_markup,
)
from trainer.report.run_reader import LoadedRun
from trainer.run.console import counted
from trainer.run.records import EpisodeRecord
from trainer.run.transcripts import by_kind

PER_KIND = 6  # questions shown of each kind
TURNS = 30  # shown of an episode


@dataclass(frozen=True)
class TurnMarkup:
    """One action and its result."""

    action: ActionMarkup
    observation: ObservationMarkup
    reward: float | None  # None if the environment did not answer
    raw_text: str  # the model's own text if it differs from the action's canonical one


@dataclass(frozen=True)
class EpisodeMarkup:
    """One episode of a pair. `left_out` counts the turns that are not shown."""

    title: str
    record: EpisodeRecord
    turns: Sequence[TurnMarkup]
    left_out: int
    notes: Sequence[str]


@dataclass(frozen=True)
class EpisodePair:
    """One question's episodes; `gold_answer` and `gold_sql` are empty if it is not available."""

    kind: str
    text: str
    before: EpisodeMarkup
    after: EpisodeMarkup
    random: EpisodeMarkup | None
    gold_sql: str
    gold_answer: str


@dataclass(frozen=True)
class PairKind:
    """Questions that were correct or wrong before and after: how many there are, how many shown."""

    label: str
    count: int
    shown: int


def kinds_and_pairs(run: LoadedRun) -> tuple[list[PairKind], list[EpisodePair]]:
    """Return each kind's size, and its first `PER_KIND` questions by a hash of the question's id.

    Both are empty without the greedy evaluations before and after.
    """
    results = [run.evaluations.get(phase, {}).get("greedy") for phase in ("before", "after")]
    if None in results:
        return [], []
    before, after = (result.by_question() for result in results if result)
    sampled = run.evaluations.get("random", {}).get("sampled")
    random = sampled.by_question() if sampled else {}
    kinds, pairs = [], []
    for label, members in by_kind(before, after).items():
        shown = members[:PER_KIND]
        kinds.append(PairKind(label, len(members), len(shown)))
        for key in shown:
            question = run.questions.get(key)
            pairs.append(
                EpisodePair(
                    kind=label,
                    text=cut(run.question_text(key), 2_000),
                    before=episode_markup("before training", before[key]),
                    after=episode_markup("after training", after[key]),
                    random=episode_markup("random actions", random[key]) if key in random else None,
                    gold_sql=cut(question.gold_sql, 2_000) if question else "",
                    gold_answer=cut(question.answer_text, 600) if question else "",
                )
            )
    return kinds, pairs


def episode_markup(title: str, record: EpisodeRecord) -> EpisodeMarkup:
    turns = []
    for index, turn in enumerate(record.turns[:TURNS]):
        action = record.actions[index] if index < len(record.actions) else turn.action
        turns.append(
            TurnMarkup(
                action=action_markup(action),
                observation=observation_markup(action, turn.observation),
                reward=record.rewards[index] if index < len(record.rewards) else None,
                raw_text="" if action == turn.action else cut(turn.action, 600),
            )
        )
    notes = []
    if record.parse_failures:
        texts = counted(record.parse_failures, "text")
        notes.append(f"{texts} held no action and ran as a QUERY")
    if record.context_truncations:
        times = counted(record.context_truncations, "time")
        notes.append(f"the context was truncated {times}; the episode continued")
    if record.context_overflow:
        notes.append("the episode ended because the context window was full")
    if record.too_large:
        notes.append("the episode ended because its actions reached the server's limit on bytes")
    return EpisodeMarkup(title, record, turns, max(0, len(record.turns) - TURNS), notes)
