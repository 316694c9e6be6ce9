"""Whether a run or an evaluation asked the questions that its settings say, each exactly once."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from env_server.audit.replay import RunFolder
from env_server.questions import QuestionBank
from shared.dataset import Question
from shared.run_files import EVALUATION, EpisodeLine
from shared.run_stats import MODES
from shared.subset import choose

Asked = tuple[str, int]  # question id, number of the sample
NAMED = 3  # questions that one difference names


def question_differences(
    run: RunFolder, bank: QuestionBank, episodes: Sequence[EpisodeLine]
) -> Iterator[str]:
    """Yield where the recorded questions are not those that the settings in config.json ask."""
    if run.settings.evaluation is None:
        yield from _of_run(run, bank, episodes)
    else:
        yield from _of_evaluation(run, bank, episodes, run.settings.evaluation)


def _of_run(run: RunFolder, bank: QuestionBank, episodes: Sequence[EpisodeLine]) -> Iterator[str]:
    options, levels = run.settings.options, run.settings.config.difficulty_filter
    training = {one.question_id for one in _chosen(bank, run.train_split, levels)}
    if only := options.get("questions"):
        training &= {*only}
    measured = _chosen(bank, "eval", levels, int(options.get("eval_limit", 0)))
    points = _limited(measured, int(options.get("eval_points", 0)))
    wanted = {"eval": points, **dict.fromkeys(("random", "before", "after"), measured)}
    groups: dict[tuple[str, str, int], Counter[Asked]] = defaultdict(Counter)
    for one in episodes:
        groups[one.phase, one.mode, one.step][one.question_id, 0] += 1
    for (phase, mode, step), found in groups.items():
        where = f"{phase} ({mode}), step {step}"
        if phase == "train":
            foreign = sorted({name for name, _ in found} - training)
            yield from _named(where, "is no training question of this run", foreign)
        elif phase in wanted:
            yield from _compared(where, found, {(one.question_id, 0) for one in wanted[phase]})
        else:
            yield f"{where}: no such phase"
    if run.summary.exists() and run.settings.command == "train":
        present = {(phase, mode) for phase, mode, _ in groups}
        needed = [("random", "sampled")]
        needed += [(phase, mode) for phase in ("before", "after") for mode in MODES]
        missing = [one for one in needed if one not in present]
        yield from (f"{phase} ({mode}) is missing" for phase, mode in missing)


def _of_evaluation(
    run: RunFolder, bank: QuestionBank, episodes: Sequence[EpisodeLine], said: dict[str, Any]
) -> Iterator[str]:
    result = run.path / EVALUATION
    finished = json.loads(result.read_bytes()) if result.exists() else {}
    rows = [
        one
        for one in _chosen(bank, said["split"], said["difficulty"])
        if (not said["databases"] or one.database_name in said["databases"])
        and (not said["question_ids"] or one.question_id in said["question_ids"])
    ]
    asked = {one.question_id for one in _limited(rows, said["limit"])}
    found: Counter[Asked] = Counter()
    for one in episodes:
        found[one.question_id, one.sample] += 1
        if (one.phase, one.mode) != (said["split"], said["mode"]):
            yield f"{one.question_id} is of {one.phase} ({one.mode})"
    samples = int(finished.get("samples", said["samples"]))
    wanted = {(name, sample) for name in asked for sample in range(samples)}
    # lost episodes are not stored, and an earlier call may have played more samples
    more = {one for one in found if one[0] in asked and one[1] >= samples}
    missing = int(finished["episodes_missing"]) if finished else len(wanted)
    yield from _compared("the evaluation", found, wanted | more, missing)


def _chosen(
    bank: QuestionBank, split: str, levels: Sequence[str], limit: int = 0
) -> list[Question]:
    rows = [one for one in bank.splits.get(split, ()) if one.difficulty in levels]
    return _limited(rows, limit)


def _limited(rows: Sequence[Question], limit: int) -> list[Question]:
    return choose(rows, limit, lambda one: (one.difficulty, one.database_name))


def _compared(
    where: str, found: Counter[Asked], wanted: set[Asked], may_miss: int = 0
) -> Iterator[str]:
    """Yield what was asked too often or should not have been, and what is missing if that is more
    than `may_miss`."""
    yield from _named(where, "was not to be asked", _names(found.keys() - wanted))
    repeated = {one for one, count in found.items() if count > 1}
    yield from _named(where, "was recorded more than once", _names(repeated))
    missing = wanted - found.keys()
    if len(missing) > may_miss:
        yield from _named(where, "is missing", _names(missing))


def _names(asked: set[Asked]) -> list[str]:
    return [f"{name} (sample {sample})" if sample else name for name, sample in sorted(asked)]


def _named(where: str, problem: str, names: Sequence[str]) -> Iterator[str]:
    if names:
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"{where}: {', '.join(names[:NAMED])}{more} {problem}"
