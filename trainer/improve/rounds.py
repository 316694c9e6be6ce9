"""The rounds of `python -m trainer improve`: play, keep what was right, fine-tune, measure.

OUT/
  improve.json        the settings; the same command resumes from the folders below
  phases.jsonl        wall and CPU seconds of each phase of each session
  round-N/development/, round-N/play/  what the model of round N did (evaluations); round 0's model
                      is the start model
  round-N/sft/latest  the fine-tuning of round N, from the start model
  before/, round-N/after/  the eval questions, by the start model and by the best one (evaluations)
  model               a link to the best round's model
  improvement.json, improvement.md, improvement.png  the result
"""

import gc
import os
import random
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from shared.console import print_line
from shared.dataset import OPEN, has_split
from shared.run_stats import Rate
from trainer.config.settings import ConfigError, GRPOConfig, LabelsName
from trainer.errors import RunError
from trainer.improve.improvement_report import Result, Round, result_of, write_report
from trainer.run.analysis import LABEL_WEIGHT, LEAST_ATTEMPTS
from trainer.run.console import seconds_text
from trainer.run.evaluation import EvaluationResult, EvaluationSettings, run_evaluation
from trainer.run.folder import (
    LATEST,
    Run,
    append_lines,
    begin_or_resume,
    check_writable,
    held,
    read_json,
    read_lines,
)
from trainer.run.inputs import load_inputs
from trainer.run.job import run_job
from trainer.run.measurement import PromptRow, choose
from trainer.run.options import configured
from trainer.run.progress import Pace
from trainer.run.resume import resumed_settings
from trainer.runtime.interrupt import Interrupted
from trainer.sft.demonstration_kinds import AGREED, COMPLETED, CORRECTED, MENDED, RECOVERED, RUN
from trainer.sft.sft_command import warm_start_config
from trainer.sft.sft_job import SftJob, SftOptions

SOURCES: Mapping[LabelsName, Sequence[str]] = {  # of demonstrations, by what is taken as right
    "gold": (RUN, COMPLETED, CORRECTED),
    "rewards": (RUN, COMPLETED, RECOVERED),
    "agreement": (AGREED, MENDED),
}
TEMPERATURE = 0.7  # of play: a raw model is right half as often at 1
EPOCHS = 2
DEVELOPMENT = 200  # questions that the rounds are measured on
LEARN_COST = 3.5  # time to learn from a token, over that to read it
PATIENCE = 2  # rounds without a gain on the development questions, after which it stops
FEWEST = 5  # questions to learn from: one of as many measures
FEW_DATABASES = 5  # of fewer, the development questions share the databases of the others
# a fine-tuned model needs no instructions, and rows of this length fit a small machine
DEFAULTS: Mapping[str, Any] = {
    "max_context_tokens": 1024,
    "step_budget": 8,
    "per_device_train_batch_size": 1,  # half the memory of 4, at no cost in time
    "gradient_accumulation_steps": 8,
}
TRAINED: Mapping[str, Any] = {"system_prompt": "short"}


@dataclass(frozen=True, kw_only=True)
class ImproveSettings:
    """What decides an improvement. `overrides` are settings of `GRPOConfig`, model and seed too."""

    preset: str | None
    overrides: Mapping[str, Any]
    out: Path
    servers: tuple[str, ...] = ()
    labels: LabelsName = "gold"
    rounds: int = 5
    questions: int = 400  # played in a round
    samples: int = 2  # episodes of each
    eval_limit: int = 0  # eval questions; 0: all

    def __post_init__(self) -> None:
        if self.by_agreement and self.samples < LEAST_ATTEMPTS:
            raise ConfigError(
                f"{self.samples} attempts at a question can't agree: give --samples "
                f"{LEAST_ATTEMPTS} or more"
            )

    @property
    def by_agreement(self) -> bool:
        return self.labels == "agreement"

    def config(self, model: Path | None = None) -> GRPOConfig:
        if model is None:
            return configured(self.preset, {**DEFAULTS, **self.overrides})[1]
        trained = {**TRAINED, **self.overrides, "model_name": str(model)}
        return configured(None, {**DEFAULTS, **trained})[1]

    @property
    def identity(self) -> dict[str, Any]:
        free = ("out", "servers", "rounds", "eval_limit", "overrides")
        kept = {name: value for name, value in asdict(self).items() if name not in free}
        return kept | {name: str(one) for name, one in self.overrides.items()}


def development_questions(rows: Sequence[PromptRow], size: int, seed: int) -> list[PromptRow]:
    """Return about `size` of the training questions to measure the rounds on, at most a fifth. They
    are about databases of their own, unless there are fewer than `FEW_DATABASES`."""
    size, stream = min(size, len(rows) // FEWEST), random.Random(f"development:{seed}")
    names = sorted({row["database_name"] for row in rows})
    if len(names) < FEW_DATABASES:
        picked = set(stream.sample(range(len(rows)), size))
        return [row for index, row in enumerate(rows) if index in picked]
    stream.shuffle(names)
    held_out: set[str] = set()
    found: list[PromptRow] = []
    for name in names[: len(names) // FEW_DATABASES]:
        if len(found) < size:
            held_out.add(name)
            found = [row for row in rows if row["database_name"] in held_out]
    return choose(found, size)


def practice_questions(
    rows: Sequence[PromptRow], development: Sequence[PromptRow], count: int, number: int, seed: int
) -> list[str]:
    """Return the ids of the questions to play in round `number`: others in each round, in a fixed
    shuffled order that starts again when all were played."""
    by_database = len({row["database_name"] for row in rows}) >= FEW_DATABASES
    key = "database_name" if by_database else "question_id"
    measured = {row[key] for row in development}
    ids = [row["question_id"] for row in rows if row[key] not in measured]
    random.Random(f"practice:{seed}").shuffle(ids)
    places = range(number * count, number * count + min(count, len(ids)))
    return [ids[place % len(ids)] for place in places]


class Improver:
    """One improvement in its folder. Every phase that is complete there is read, not repeated."""

    def __init__(self, settings: ImproveSettings, console: Console) -> None:
        self._settings, self._console = settings, console
        self._out = settings.out
        config = settings.config()
        golds, asked = (has_split(config.questions_path, one) for one in ("train", OPEN))
        if asked and not (golds or settings.by_agreement):
            raise ConfigError(
                f"no question of {config.data_dir} has a gold: use --labels agreement"
            )
        self._measured_aside = has_split(config.questions_path, "eval")
        split = "eval" if self._measured_aside or not settings.by_agreement else None
        inputs = load_inputs(config, SftOptions(), split, with_model=False)
        found, self._data_digest = inputs.train, inputs.data_digest
        self._split = OPEN if asked and settings.by_agreement else "train"
        is_open = self._split == OPEN
        self._rows = rows = [row for row in found if (row["difficulty"] == OPEN) == is_open]
        self._seed, self._cost_said = config.seed, False
        self._development = development_questions(rows, DEVELOPMENT, self._seed)
        if not self._development:
            more = "difficulties with --set difficulty_filter"
            remedy = f"write {FEWEST} or more" if is_open else f"name other --data, or more {more}"
            raise ConfigError(
                f"{len(rows)} training questions are too few to keep some for measuring: {remedy}"
            )

    def run(self) -> Result:
        begun = self._out / "improve.json"
        check_writable(begun)
        with held(self._out):
            begin_or_resume(begun, self._settings.identity | {"data_digest": self._data_digest})
            self._check_rounds()
            rounds = [self._measured(0, None, None)]
            for number in range(1, self._settings.rounds + 1):
                if number - best(rounds).number > PATIENCE:
                    print_line(self._console, f"no gain in {PATIENCE} rounds: it ends")
                    break
                labels = self._play(rounds[-1])
                if labels and number == 1 and not labels["n"]:
                    raise RunError(
                        f"no answer has more than {LABEL_WEIGHT:.0%} of the votes at a question: "
                        "start from another --model, or play more --questions"
                    )
                rounds.append(self._measured(number, self._fine_tune(number), labels))
                self._keep_best(rounds)
                self._report(rounds)
            if not self._measured_aside:
                return self._report(rounds)
            asked = {"limit": self._settings.eval_limit, "temperature": None}
            winner, start = best(rounds), self._out / "before"
            end = self._folder(winner.number) / "after"  # with more rounds, another may be the best
            before = self._evaluate("before", start, None, **asked)
            after = self._evaluate("after", end, winner.model, against=start, **asked)
            return self._report(rounds, before, after)

    def _check_rounds(self) -> None:
        measured, rounds = 0, self._settings.rounds
        while Run(self._folder(measured + 1) / "development").result.exists():
            measured += 1
        if measured > rounds:
            raise RunError(
                f"{self._out} has {measured} rounds, more than {rounds}: give --rounds {measured} "
                "or more"
            )

    def _folder(self, number: int) -> Path:
        return self._out / f"round-{number}"

    def _measured(self, number: int, model: Path | None, labels: Rate | None) -> Round:
        sampled = self._settings.by_agreement
        result = self._evaluate(
            f"round {number} development",
            self._folder(number) / "development",
            model,
            split=self._split,
            question_ids=tuple(row["question_id"] for row in self._development),
            samples=self._settings.samples if sampled else 1,
            temperature=TEMPERATURE if sampled else None,
        )
        taught = {} if model is None else read_json(Run(model.parent).summary)["sft"]
        found = result["success"]["overall"]
        agreement = found["winning_share"] if sampled else None
        return Round(number, found["success"], agreement, labels, taught, model)

    def _practice(self, number: int) -> list[str]:
        count = self._settings.questions
        return practice_questions(self._rows, self._development, count, number, self._seed)

    def _play(self, one: Round) -> Rate | None:
        settings, number = self._settings, one.number
        result = self._evaluate(
            f"round {number} play",
            self._folder(number) / "play",
            one.model,
            split=self._split,
            question_ids=tuple(self._practice(number)),
            samples=settings.samples,
            temperature=TEMPERATURE,
            seed=self._seed + number,
        )
        return result["success"]["overall"]["labels"] if settings.by_agreement else None

    def _evaluate(
        self, phase: str, out: Path, model: Path | None, **named: Any
    ) -> EvaluationResult:
        """Return a finished evaluation's result (its model may be gone), or play what is
        missing."""
        folder = Run(out)
        if folder.result.exists():
            result: EvaluationResult = read_json(folder.result)
            if result["limit"] != named.get("limit", 0):
                raise RunError(
                    f"{out} was measured with --eval-limit {result['limit']}: repeat it, or move "
                    "this folder away"
                )
            if not result["episodes_missing"] or (model is not None and not model.exists()):
                return result
        servers = self._settings.servers
        settings = EvaluationSettings(
            config=self._settings.config(model), servers=servers, out=out, **named
        )
        with self._timed(phase):
            return run_evaluation(settings, self._console, self._say_cost)

    def _say_cost(self, pace: Pace) -> None:
        if not self._cost_said:
            self._cost_said = True
            settings, measured = self._settings, len(self._development)
            measured *= settings.samples if settings.by_agreement else 1
            tokens = min(pace.episode_tokens, settings.config().max_context_tokens)
            count = len(self._practice(0))
            line = round_cost(pace, tokens, measured, count * settings.samples, count)
            print_line(self._console, line)

    def _fine_tune(self, number: int) -> Path:
        settings, out = self._settings, self._folder(number) / "sft"
        run = Run((out / LATEST).resolve())
        if run.finished:
            return run.model
        begun = run if run.path.exists() else None
        if begun is not None:
            config, options = resumed_settings(begun, settings.servers, {}, SftOptions)
        else:
            plays = [self._folder(earlier) / "play" for earlier in range(number)]
            if settings.by_agreement:
                plays.reverse()  # a question's latest label counts: see `consistent`
            sources = tuple(f"{kind}:{play}" for play in plays for kind in SOURCES[settings.labels])
            named = {"seed": self._seed + number, "num_train_epochs": EPOCHS, "output_dir": out}
            values = {**DEFAULTS, **TRAINED, **settings.overrides, **named}
            choice, config = warm_start_config(settings.preset, values)
            options = SftOptions(choice.preset, out, settings.servers, sources=sources)
        with self._timed(f"round {number} sft"):
            run_job(config, options, SftJob, resume=begun, console=self._console)
        return Run((out / LATEST).resolve()).model

    def _keep_best(self, rounds: Sequence[Round]) -> None:
        winner = best(rounds)
        for one in rounds:
            if one.model is not None and one.number != winner.number:
                shutil.rmtree(one.model.parent / "checkpoints", ignore_errors=True)
                if one.number < winner.number:
                    shutil.rmtree(one.model, ignore_errors=True)
        link = self._out / "model"
        link.unlink(missing_ok=True)
        if winner.model is not None:
            link.symlink_to(os.path.relpath(winner.model, self._out))

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        print_line(self._console, phase)
        # of this process and of its children that have ended
        wall, cpu = time.monotonic(), sum(os.times()[:4])
        try:
            yield
        except Interrupted:
            print_line(self._console, "stopped: the same command resumes the improvement")
            raise
        finally:
            gc.collect()  # models of this phase
            seconds = {"wall_s": time.monotonic() - wall, "cpu_s": sum(os.times()[:4]) - cpu}
            row = {name: round(value, 1) for name, value in seconds.items()}
            append_lines(self._out / "phases.jsonl", [{"phase": phase, **row}])

    def _report(
        self,
        rounds: Sequence[Round],
        before: EvaluationResult | None = None,
        after: EvaluationResult | None = None,
    ) -> Result:
        phases = list(read_lines(self._out / "phases.jsonl"))
        settings = self._settings.identity
        result = result_of(settings, rounds, best(rounds), phases, before, after)
        write_report(self._out, result, self._settings.config())
        return result


def round_cost(pace: Pace, tokens: float, measured: int, practice: int, taught: int) -> str:
    seconds = {
        f"to play {practice} episodes": practice * pace.episode_s,
        "to fine-tune": taught * tokens * EPOCHS * LEARN_COST * pace.read_token_s,
        f"to measure on {measured} episodes": measured * pace.episode_s,
    }
    parts = ", ".join(f"{seconds_text(value)} {what}" for what, value in seconds.items())
    total = seconds_text(sum(seconds.values()))
    return (
        f"a round will take about {total} on this machine: {parts}; later rounds fine-tune longer"
    )


def best(rounds: Sequence[Round]) -> Round:
    return max(rounds, key=lambda one: (one.measure["rate"] or 0.0, -one.number))
