"""Scripts from recorded episodes of a run or an evaluation: what was right, and failures mended.

`corrected` alone reads gold. `agreed` and `mended` go by what the agents read and by their vote
alone, so they also teach open questions; the others go by the rewards too.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shared.actions import ActionType, normalise
from shared.dataset import AnyQuestion, Question
from shared.models import Outcome
from shared.run_stats import ANSWERED
from trainer.config.settings import REWARD_WEIGHTS
from trainer.rollout.prompts import NO_ROWS, NOTE, REMARKS, STEPS_LEFT, result_of
from trainer.rollout.vote import answer_key
from trainer.run.analysis import label_of
from trainer.run.folder import Run
from trainer.run.records import EpisodeRecord, read_records
from trainer.sft.scripts import Script, one_line, oracle_script, place

RUN, COMPLETED, RECOVERED, CORRECTED = "run", "completed", "recovered", "corrected"
AGREED, MENDED = "agreed", "mended"  # the kinds without a gold
PER_QUESTION = 2  # right episodes of a folder that are taught per question, the shortest ones
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?(e[+-]\d+)?")


@dataclass(frozen=True)
class Played:
    """A recorded episode about a training question. With a `label`, the key of an answer
    (`trainer.rollout.vote`), that is right, and neither gold nor rewards are."""

    question: AnyQuestion
    record: EpisodeRecord
    label: str | None = None

    @property
    def asked(self) -> bool:
        """Whether its agent, if what it read is known, was asked the question's present text."""
        text = f"Question: {self.question.question_text}\n"
        return all(one.startswith(text) for one in self.record.seen[:1])

    def reply(self, action: int) -> str:
        return "".join(self.record.seen[action + 1 : action + 2])

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(map(one_line, self.record.actions))

    @property
    def right(self) -> bool:
        if self.label is None:
            return self.record.outcome == Outcome.CORRECT
        return self.record.attempt.key == self.label

    @property
    def wrong(self) -> bool:
        return self.record.outcome in (*ANSWERED, Outcome.BUDGET) and not self.right

    @property
    def right_query(self) -> int | None:
        """The place of the last query that returned the label's rows, or the first that returned
        the gold's by its rewards: the progress layer's sum is then its whole weight. None if there
        is none."""
        if self.label is not None:
            return next(filter(self._shows_label, reversed(range(len(self.actions)))), None)
        earned = 0.0
        for index, parts in enumerate(self.record.parts):
            earned += parts.get("progress", 0.0)
            if earned > 0.999 * REWARD_WEIGHTS["progress"]:
                return index
        return None

    @property
    def shown_answer(self) -> str | None:
        """The right query's result as an ANSWER; None without such a query, or if it was cut."""
        if (index := self.right_query) is None or not self.reply(index):
            return None
        text = answer_shown(self.reply(index))
        return None if text is None else f"ANSWER: {text}"

    @property
    def last_query(self) -> int | None:
        places = reversed(range(len(self.actions)))
        return next((at for at in places if self.actions[at].startswith(ActionType.QUERY)), None)

    def _shows_label(self, index: int) -> bool:
        if not self.actions[index].startswith(ActionType.QUERY):
            return False
        text = answer_shown(self.reply(index))
        return text is not None and answer_key(text, [result_of(self.reply(index))]) == self.label

    @property
    def failed_query(self) -> int | None:
        """The place of the first query that was answered with an error or wrongly found nothing."""
        for index, parts in enumerate(self.record.parts):
            in_vain = index != self.right_query and found_nothing(self.reply(index))
            failed = "exec_ok" not in parts or in_vain
            if failed and self.actions[index].startswith(ActionType.QUERY):
                return index
        return None

    @property
    def first_query(self) -> int:
        said = (ActionType.QUERY, ActionType.ANSWER)
        places = (at for at, action in enumerate(self.actions) if action.startswith(said))
        return next(places, len(self.actions))


def answer_shown(observation: str) -> str | None:
    """Return the rows of a query's result, as the agent read it, in the form that the prompt asks
    for: one cell as it is, a column as a JSON array, else JSON rows. None if rows or text are cut.
    """
    header, *lines = _lines(observation)
    width = len(header.split(" | "))
    rows = [line.split(" | ") for line in lines]
    if not lines or lines[-1].startswith(REMARKS) or any(len(row) != width for row in rows):
        return None
    if any(cell.endswith("…") for row in rows for cell in row):
        return None
    if len(rows) == width == 1:
        return "null" if rows[0][0] == "NULL" else rows[0][0]
    values = [[_value(cell) for cell in row] for row in rows]
    return json.dumps([row[0] for row in values] if width == 1 else values, ensure_ascii=False)


def found_nothing(observation: str) -> bool:
    _, *lines = _lines(observation)
    return len(lines) == 1 and {*lines[0].split(" | ")} <= {NO_ROWS, "NULL", "0"}


def _lines(observation: str) -> list[str]:
    lines = observation.partition(f"\n{STEPS_LEFT}")[0].split("\n")
    return [line for line in lines if not line.startswith(NOTE)]


def _value(cell: str) -> Any:
    if cell == "NULL":
        return None
    return json.loads(cell) if _NUMBER.fullmatch(cell) else cell


def recorded_scripts(
    source: str, kind: str, folder: Path, questions: Iterable[AnyQuestion]
) -> list[Script]:
    """Return the scripts of a `kind` that a folder's episodes about `questions` yield, each once.
    Episodes of other questions, such as those that a run measures on or that had the id before a
    new import, are never taught."""
    asked = {one.question_id: one for one in questions}
    records = (one for one in read_records(Run(folder)) if one.question_id in asked)
    episodes = [Played(asked[one.question_id], one) for one in records]
    episodes = [one for one in episodes if one.asked]
    return list(dict.fromkeys(_KINDS[kind](source, episodes)))


def successes(source: str, episodes: Iterable[Played]) -> Iterator[Script]:
    """Yield at most `PER_QUESTION` of a question, the shortest first; the answer as the prompt asks
    for it, where the last query showed it whole: the rows of others may be in another order."""
    right: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for one in sorted((one for one in episodes if one.right), key=lambda one: one.record.steps):
        *looks, said = distinct(one.actions)
        shown = one.shown_answer if one.right_query == one.last_query else None
        actions, kept = (*looks, shown or said), right[one.question.question_id]
        if len(kept) < PER_QUESTION and actions not in kept:
            kept.add(actions)
            yield Script(source, *place(one.question), actions, label=one.label)


def completed(source: str, episodes: Iterable[Played]) -> Iterator[Script]:
    """Yield the episodes up to the query that returned the gold's rows, and these as the answer."""
    for one in episodes:
        if one.wrong and (answer := one.shown_answer) is not None:
            assert one.right_query is not None
            actions = (*distinct(one.actions[: one.right_query + 1]), answer)
            yield Script(source, *place(one.question), actions)


def recovered(source: str, episodes: Sequence[Played]) -> Iterator[Script]:
    """Mend episodes with a failed query by the shortest other episode of the question that returned
    the right rows (with a label: and gave the answer): its DESCRIBEs, its query and the answer."""
    ways: dict[str, list[str]] = {}
    solved = (one for one in episodes if one.right or one.label is None)
    for one in sorted(solved, key=lambda one: one.record.steps):
        if (right := one.right_query) is not None and (answer := one.shown_answer) is not None:
            looks = [look for look in one.actions[:right] if look.startswith(ActionType.DESCRIBE)]
            ways.setdefault(one.question.question_id, [*looks, one.actions[right], answer])
    unsolved = [one for one in episodes if one.right_query is None and one.failed_query is not None]
    return _mended(source, unsolved, lambda one: ways.get(one.question.question_id, []))


def labelled(episodes: Iterable[Played]) -> list[Played]:
    """Return the episodes of the questions that have a label; one, the shortest, of those on which
    all agree: they have the least to teach."""
    tries: dict[str, list[Played]] = defaultdict(list)
    for one in episodes:
        tries[one.question.question_id].append(one)
    found: list[Played] = []
    for played in tries.values():
        if (label := label_of([one.record for one in played])) is not None:
            known = [replace(one, label=label) for one in played]
            shortest = min(known, key=lambda one: one.record.steps)
            found += [shortest] if all(one.right for one in known) else known
    return found


def corrected(source: str, episodes: Sequence[Played]) -> Iterator[Script]:
    """Mend an episode of each question, if possible a short one with a failed query, by the gold:
    so a model learns to correct its own mistakes (DAgger: Ross et al. 2011, arXiv:1011.0686)."""
    ordered = sorted(episodes, key=lambda one: (one.failed_query is None, one.record.steps))
    scripts: dict[str, Script] = {}
    for script in _mended(source, ordered, _by_gold):
        scripts.setdefault(script.question_id, script)
    yield from scripts.values()


def _by_gold(one: Played) -> Sequence[str]:
    return oracle_script(one.question) if isinstance(one.question, Question) else ()


def _mended(
    source: str, episodes: Iterable[Played], way: Callable[[Played], Sequence[str]]
) -> Iterator[Script]:
    """Yield the incorrect episodes through their first failed query, or without one as far as the
    first query or answer, and then those actions of the question's way that were not taken. Only
    these are taught. Episodes that ran the way's query before are left out.
    """
    for one in episodes:
        failed, actions = one.failed_query, way(one)
        if not (one.wrong and actions):
            continue
        end = one.first_query if failed is None else failed + 1
        replayed = distinct(one.actions[:end])
        *looks, query, answer = actions
        known = set(map(normalise, replayed))
        if normalise(query) in known:
            continue
        further = [look for look in looks if normalise(look) not in known]
        taught = (*replayed, *further, query, answer)
        yield Script(source, *place(one.question), taught, len(replayed), one.label)


def distinct(actions: Iterable[str]) -> tuple[str, ...]:
    """Return the actions without those that the environment calls repeated."""
    first: dict[str, str] = {}
    for action in actions:
        first.setdefault(normalise(action), action)
    return tuple(first.values())


_KINDS: Mapping[str, Callable[[str, Sequence[Played]], Iterator[Script]]] = {
    RUN: successes,
    COMPLETED: completed,
    RECOVERED: recovered,
    CORRECTED: corrected,
    AGREED: lambda source, episodes: successes(source, labelled(episodes)),
    MENDED: lambda source, episodes: recovered(source, labelled(episodes)),
}
RECORDED = tuple(_KINDS)  # kinds of sources that read the episodes of a folder
