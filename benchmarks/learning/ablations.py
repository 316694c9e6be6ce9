"""Ablations of GRPO: one thing changed at a time from a finished run's settings.

Every training starts from the run's model and takes the same CPU time, with several seeds. Each is
stored in RUN/ablations as soon as it is finished, with its settings, and resumes from its last
checkpoint.
"""

import functools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console

from benchmarks.learning.bench import (
    Bench,
    Finished,
    Result,
    kept,
    load_finished,
    measure_both,
    opened,
    read_kept,
)
from benchmarks.learning.seeds import SAME
from benchmarks.learning.training import train
from data.generate import generate
from shared.run_stats import MODES, SEEN, mean
from trainer.config import GRPOConfig
from trainer.errors import RunError
from trainer.evaluation.analysis import success_rates
from trainer.evaluation.evaluate import EvalResult
from trainer.evaluation.inputs import MACHINE_SPECIFIC, load_inputs
from trainer.evaluation.measure import connected
from trainer.run.folder import Run, read_json, read_lines

FOLDER, STORED = "ablations", "training"  # of the run; of one training: its JSON and its files
STEPS = 1_000_000  # more than any CPU time allows; a linear rate falls with that time instead
FRESH_SEED = 1_000  # plus the training's seed; those of pretraining are below
FRESH_DATABASES, FRESH_QUESTIONS = 240, 8  # 239 steps of 8 questions; the last one is not trained


@dataclass(frozen=True)
class Ablation:
    """One change from a run's settings. `about` continues the sentence "It trains with ..."."""

    name: str
    about: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # fields of `GRPOConfig`
    fresh: bool = False  # train on generated databases and questions

    @property
    def slug(self) -> str:
        return self.name.replace(" ", "-")


BASELINE = Ablation("baseline", "the settings of the run")
ABLATIONS = (
    BASELINE,
    Ablation("one update", "one update per batch of episodes", {"updates_per_batch": 1}),
    Ablation("symmetric clipping", "ratios clipped to 0.8 and 1.2", {"epsilon_high": 0.2}),
    Ablation("token mean", "a mean over the tokens of all episodes", {"loss_type": "dapo"}),
    Ablation("temperature 1.0", "episodes sampled at temperature 1.0", {"temperature": 1.0}),
    Ablation("temperature 1.4", "episodes sampled at temperature 1.4", {"temperature": 1.4}),
    Ablation("learning rate 1.5e-4", "a learning rate of 1.5e-4", {"learning_rate": 1.5e-4}),
    Ablation("learning rate 6e-4", "a learning rate of 6e-4", {"learning_rate": 6e-4}),
    Ablation(
        "constant learning rate",
        "a learning rate that does not fall",
        {"lr_scheduler": "constant_with_warmup"},
    ),
    Ablation(
        "4 generations", "groups of 4 episodes, on more questions per step", {"num_generations": 4}
    ),
    Ablation(
        "fresh questions",
        f"questions on {FRESH_DATABASES - 1} generated databases instead of the shipped ones",
        fresh=True,
    ),
    Ablation(
        "keep one-verdict groups",
        "the groups that are all right or all wrong, too",
        {"skip_one_verdict_groups": False},
    ),
    Ablation(
        "group scaling",
        "advantages scaled by each group's standard deviation",
        {"scale_rewards": "group"},
    ),
)


@dataclass(frozen=True)
class Trainings:
    """The stored trainings of an ablation, by seed.

    The seconds of a result are CPU-seconds of training. Its notes are steps, one_verdict (share of
    the groups), and by_question (success on the questions about seen databases, the mean of both
    modes).
    """

    ablation: Ablation
    by_seed: Mapping[int, Result]


@dataclass(frozen=True)
class Ablations:
    """The stored trainings of a run that took the same CPU time, in the table's order."""

    finished: Finished
    cpu_s: float
    rows: Sequence[Trainings]

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for row in self.rows for seed in row.by_seed})


def ablations_of(config: GRPOConfig) -> list[Ablation]:
    """Return the baseline and the ablations that change something in these settings."""
    return [
        one for one in ABLATIONS if one is BASELINE or one.fresh or changed(config, one) != config
    ]


def changed(config: GRPOConfig, ablation: Ablation) -> GRPOConfig:
    return config.override(**ablation.settings)


def run_ablations(
    path: Path, only: Sequence[str], seeds: Sequence[int], cpu_s: float, *, console: Console
) -> Ablations:
    """Train the ablations that have no stored result; return all stored ones of this CPU time.

    `only` are names or slugs; none: all. Raises `RunError` if a stored training has other settings,
    or if the run, its data, its model or the server have changed since.
    """
    finished = load_finished(path)
    if finished.config.lr_scheduler == "cosine":
        raise RunError(
            f"{finished.run.id} has lr_scheduler=cosine, which follows the number of steps: equal "
            "CPU time leaves that open. Name a run with linear or constant_with_warmup"
        )
    known = {one.slug: one for one in ablations_of(finished.config)}
    chosen = [name.replace(" ", "-") for name in only]
    if unknown := sorted(set(chosen) - set(known)):
        raise RunError(f"no ablation {', '.join(unknown)}; this run's are {', '.join(known)}")
    wanted = [one for slug, one in known.items() if not chosen or slug in chosen]
    stored(finished, cpu_s)  # those of other settings are refused before anything is trained
    with opened(finished, finished.run.path / FOLDER, console) as bench:
        torch.set_num_threads(1)  # several threads take more CPU time for the same work
        for seed in seeds:
            for one in wanted:
                folder = training_folder(finished, one, seed, cpu_s)
                of = settings_of(finished, one, seed, cpu_s)
                kept(folder, STORED, of, functools.partial(train_one, bench, one, seed, cpu_s))
                shutil.rmtree(Run(folder / STORED).checkpoints, ignore_errors=True)
    return Ablations(finished, cpu_s, stored(finished, cpu_s))


def training_folder(finished: Finished, ablation: Ablation, seed: int | str, cpu_s: float) -> Path:
    return finished.run.path / FOLDER / f"{ablation.slug}-{cpu_s:g}s-seed{seed}"


def settings_of(finished: Finished, ablation: Ablation, seed: int, cpu_s: float) -> dict[str, Any]:
    """Return everything that decides the result of a training, as it is stored beside it."""
    config = training_config(finished.config, ablation, seed)
    settings = {
        name: value for name, value in asdict(config).items() if name not in MACHINE_SPECIFIC
    }
    data = [FRESH_SEED + seed, FRESH_DATABASES, FRESH_QUESTIONS] if ablation.fresh else "the run's"
    settings |= {"cpu_s": cpu_s, "training_data": data}
    return {"digests": {name: finished.digests[name] for name in SAME}, "settings": settings}


def training_config(config: GRPOConfig, ablation: Ablation, seed: int) -> GRPOConfig:
    return replace(changed(config, ablation), seed=seed, max_steps=STEPS)


def stored(finished: Finished, cpu_s: float) -> list[Trainings]:
    """Return the finished trainings of this CPU time.

    `RunError` if one, finished or not, has other settings than this run's.
    """
    rows = []
    for one in ablations_of(finished.config):
        by_seed = {}
        pattern = training_folder(finished, one, "*", cpu_s)
        endings = (path.name.rpartition("seed")[2] for path in pattern.parent.glob(pattern.name))
        for seed in sorted(int(ending) for ending in endings if ending.isdecimal()):
            folder = training_folder(finished, one, seed, cpu_s)
            of = settings_of(finished, one, seed, cpu_s)
            check_same(folder, of, finished)
            if (result := read_kept(folder, STORED, of)) is not None:
                by_seed[seed] = result
        if by_seed:
            rows.append(Trainings(one, by_seed))
    return rows


def check_same(folder: Path, of: Mapping[str, Any], finished: Finished) -> None:
    """Raise `RunError` if the training in a folder is of other settings or digests than `of`."""
    result, begun = folder / f"{STORED}.json", folder / STORED / "of.json"
    if result.exists():
        saved = read_json(result)["of"]
    elif begun.exists():
        saved = read_json(begun)
    else:
        return
    then, now = ({**one["settings"], **one["digests"]} for one in (saved, of))
    if differing := [
        f"{name} {then.get(name)} and now {now.get(name)}"
        for name in sorted(then.keys() | now.keys())
        if then.get(name) != now.get(name)
    ]:
        raise RunError(
            f"{folder} was trained with other settings than {finished.run.id} has "
            f"({', '.join(differing)}), so they are not comparable: delete it to train it again"
        )


def train_one(bench: Bench, ablation: Ablation, seed: int, cpu_s: float, folder: Run) -> Result:
    """Train one ablation with one seed, and measure it on the run's eval questions."""
    title = f"{ablation.name}, seed {seed}"
    with training_bench(bench, ablation, seed, folder) as training:
        config = training_config(training.connection.config, ablation, seed)
        trained = train(training, folder, config, title, cpu_s=cpu_s)
    modes = measure_both(bench, folder, title, trained.model, trained.tokenizer)
    episodes = [
        episode
        for mode in MODES
        for episode in EvalResult.read(folder.evaluation("after", mode)).episodes
        if episode.part == SEEN
    ]
    notes = {
        "steps": trained.steps,
        "one_verdict": mean(
            row["one_verdict_groups"]
            for row in read_lines(folder.metrics)
            if "one_verdict_groups" in row
        ),
        "by_question": success_rates((one.question_id, one.outcome) for one in episodes),
    }
    return Result({ablation.slug: modes}, round(trained.spent.cpu_s, 3), notes)


@contextmanager
def training_bench(bench: Bench, ablation: Ablation, seed: int, folder: Run) -> Iterator[Bench]:
    """Yield the bench to train on: with `ablation.fresh`, of generated data with their own server.

    The seed determines every byte of the data, so a resumed training gets the same.
    """
    if not ablation.fresh:
        yield bench
        return
    easy = [row["difficulty"] == "easy" for row in bench.inputs.train]
    with TemporaryDirectory(prefix="sqlenv-fresh-") as scratch:
        data_dir = Path(scratch)
        generate(
            FRESH_SEED + seed,
            FRESH_DATABASES,
            FRESH_QUESTIONS,
            data_dir,
            eval_databases=1,
            easy_share=sum(easy) / len(easy),
        )
        config = bench.finished.config.override(data_dir=data_dir)
        inputs = load_inputs(config, bench.finished.options, with_model=False)
        with connected(config, (), inputs, folder.server_log) as connection:
            yield replace(bench, connection=connection, inputs=inputs)
