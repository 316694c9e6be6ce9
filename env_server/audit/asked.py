"""Whether a run or an evaluation asked the questions that its settings say.

Each measurement must ask each of its questions once. Three things are noted instead of refused:
questions of an evaluation whose episodes were lost, those of the measurement in which a run was
stopped, and training questions of an unknown file.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set

from pydantic import BaseModel, ValidationError

from env_server.audit.run_folder import RunFolder
from env_server.questions import QuestionBank
from shared.dataset import OPEN, AnyQuestion
from shared.errors import first_problem
from shared.run_files import EVALUATION, EpisodeLine, read_file
from shared.run_stats import MODES
from shared.subset import choose

Asked = tuple[str, int]  # question id, number of the sample
NAMED = 3  # questions that one difference names


class _Result(BaseModel):
    """What evaluation.json says of its questions."""

    samples: int
    episodes_missing: int


def question_differences(
    run: RunFolder, bank: QuestionBank, episodes: Sequence[EpisodeLine], notes: list[str]
) -> Iterator[str]:
    """Yield where the recorded questions are not those that the settings in config.json ask; add
    what can't be decided to `notes`."""
    differences = _of_evaluation if run.settings.evaluation else _of_run
    return differences(run, bank, episodes, notes)


def _of_run(
    run: RunFolder, bank: QuestionBank, episodes: Sequence[EpisodeLine], notes: list[str]
) -> Iterator[str]:
    options, levels = run.settings.options, run.settings.config.difficulty_filter
    training = {one.question_id for one in _chosen(bank, run.train_split, levels)}
    if options.questions:
        training &= {*options.questions}
    known = run.train_split in bank.splits
    if not known:
        notes.append(
            f"not checked: training questions, of {run.settings.config.questions_path}, which is "
            "not part of the data"
        )
    measured = _chosen(bank, "eval", levels, options.eval_limit)
    points = _limited(measured, options.eval_points)
    wanted = {"eval": points, **dict.fromkeys(("random", "before", "after"), measured)}
    groups: dict[tuple[str, str, int], Counter[Asked]] = defaultdict(Counter)
    for one in episodes:
        groups[one.phase, one.mode, one.step][one.question_id, 0] += 1
    finished, last = run.summary.exists(), next(reversed(groups), None)
    for (phase, mode, step), found in groups.items():
        where = f"{phase} ({mode}), step {step}"
        if phase == "train":
            foreign = sorted({name for name, _ in found} - training) if known else ()
            yield from _named(where, "not training questions of this run", foreign)
        elif phase in wanted:
            asked = {(one.question_id, 0) for one in wanted[phase]}
            if not finished and (phase, mode, step) == last and asked - found.keys():
                total = f"{len(asked - found.keys()):,} of {len(asked):,}"
                notes.append(f"{where} is not finished: missing episodes: {total}")
                asked &= found.keys()
            yield from _compared(where, found, asked)
        else:
            yield f"{where}: no such phase"
    if finished and run.settings.command == "train":
        present = {(phase, mode) for phase, mode, _ in groups}
        needed = [("random", "sampled")]
        needed += [(phase, mode) for phase in ("before", "after") for mode in MODES]
        missing = [one for one in needed if one not in present]
        yield from (f"{phase} ({mode}) is missing" for phase, mode in missing)


def _of_evaluation(
    run: RunFolder, bank: QuestionBank, episodes: Sequence[EpisodeLine], notes: list[str]
) -> Iterator[str]:
    said = run.settings.evaluation
    assert said is not None
    rows = [
        one
        for one in _chosen(bank, said.split, said.difficulty)
        if (not said.databases or one.database_name in said.databases)
        and (not said.question_ids or one.question_id in said.question_ids)
    ]
    asked = {one.question_id for one in _limited(rows, said.limit)}
    if len(asked) != said.questions:
        yield f"the settings ask {len(asked):,} questions, not {said.questions:,}"
    found: Counter[Asked] = Counter()
    for one in episodes:
        found[one.question_id, one.sample] += 1
        if (one.phase, one.mode) != (said.split, said.mode):
            yield f"{one.question_id} was played as {one.phase} ({one.mode})"
    path, result = run.path / EVALUATION, None
    try:
        result = _Result.model_validate_json(read_file(path)) if path.exists() else None
    except ValidationError as error:
        yield f"{EVALUATION}: {first_problem(error, 'not JSON')}"
    samples = result.samples if result else said.samples
    wanted = {(name, sample) for name in asked for sample in range(samples)}
    # an earlier call may have played more samples
    more = {one for one in found if one[0] in asked and one[1] >= samples}
    missing = wanted - found.keys()
    yield from _compared("the evaluation", found, found.keys() & (wanted | more))
    if result and len(missing) != result.episodes_missing:
        yield f"missing episodes: {len(missing):,}; {EVALUATION} says {result.episodes_missing:,}"
    elif missing:
        total = f"{len(missing):,} of {len(wanted):,}"
        notes.append(f"missing episodes: {total}, which were lost, not played yet or left out")


def _chosen(
    bank: QuestionBank, split: str, levels: Sequence[str], limit: int = 0
) -> list[AnyQuestion]:
    asked: Sequence[AnyQuestion] = bank.open if split == OPEN else bank.splits.get(split, ())
    return _limited([one for one in asked if one.difficulty in (*levels, OPEN)], limit)


def _limited(rows: Sequence[AnyQuestion], limit: int) -> list[AnyQuestion]:
    return choose(rows, limit, lambda one: (one.difficulty, one.database_name))


def _compared(where: str, found: Counter[Asked], wanted: Set[Asked]) -> Iterator[str]:
    """Yield what was asked that should not have been, or too often, and what is missing."""
    yield from _named(where, "not to be asked", _names(found.keys() - wanted))
    repeated = {one for one, count in found.items() if count > 1}
    yield from _named(where, "recorded more than once", _names(repeated))
    yield from _named(where, "missing", _names(wanted - found.keys()))


def _names(asked: Set[Asked]) -> list[str]:
    return [f"{name} (sample {sample})" if sample else name for name, sample in sorted(asked)]


def _named(where: str, problem: str, names: Sequence[str]) -> Iterator[str]:
    if names:
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"{where}: {problem}: {', '.join(names[:NAMED])}{more}"
