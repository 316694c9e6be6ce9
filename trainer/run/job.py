"""The frame of a job: processes, inputs, servers, the run's folder, and how it ends or resumes."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
from rich.console import Console

from shared.console import print_line
from shared.errors import SQLEnvError
from shared.run_files import RunSummary
from trainer.config.settings import GRPOConfig
from trainer.errors import RunError, storage_problem
from trainer.rollout.loop import RolloutStats
from trainer.rollout.servers import check_servers
from trainer.run.cost import ElapsedTime
from trainer.run.folder import (
    Run,
    checkpoint_step,
    create_run,
    held,
    how_to_resume,
    point_latest,
    write_json,
)
from trainer.run.inputs import Inputs, JobOptions, load_inputs, save_settings, shared_settings
from trainer.run.measurement import Results, summaries_of
from trainer.run.metrics_log import MetricsCallback, StepProgress
from trainer.run.players import Connection, connected
from trainer.run.progress import bar
from trainer.run.resume import check_resumed_data, finished_result, shared_checkpoint
from trainer.run.summary import build_summary, git_state, versions
from trainer.runtime.cpu_budget import limit_threads
from trainer.runtime.interrupt import Interrupted, Interrupts
from trainer.runtime.memory import shortage
from trainer.runtime.ranks import Ranks, check_same_settings, check_shared_server, joined
from trainer.runtime.training import finished, save_trained, train_from


@dataclass
class Job:
    """One run over an open client. A kind of job has its phases in `run`."""

    folder: Run
    connection: Connection
    options: JobOptions
    inputs: Inputs
    console: Console
    ranks: Ranks
    sampler: Any = None  # what `sampled_by` yielded
    split: ClassVar[str | None] = "eval"  # of the questions that are measured

    def __post_init__(self) -> None:
        self._config, self._client = self.connection.config, self.connection.client
        self._results: Results = {}
        own = self.connection.own
        restarts = (lambda: own.restarts) if own else (lambda: 0)
        self._elapsed = ElapsedTime(self.folder.path / "wall.json", restarts)
        self._checkpoint = shared_checkpoint(self.folder, self.ranks)
        self._done = checkpoint_step(self._checkpoint) if self._checkpoint else 0
        steps = self._config.max_steps
        self._trained = self._checkpoint is not None and finished(self._checkpoint, steps)
        self._git = git_state()  # now: the files may change while the run is under way

    @staticmethod
    def check(config: GRPOConfig, inputs: Inputs) -> None:
        """Raise `ConfigError` for inputs that some phase can't use, before anything is played."""

    @staticmethod
    def sampled_by(config: GRPOConfig, tokenizer: Any, ranks: Ranks) -> AbstractContextManager[Any]:
        return nullcontext()

    def run(self) -> RunSummary:
        raise NotImplementedError

    def train(
        self,
        title: str,
        build: Callable[[MetricsCallback, StepProgress], Any],
        note: Callable[[Mapping[str, Any]], str],
        stats: RolloutStats | None = None,
    ) -> tuple[Any, int]:
        """Train from the last checkpoint or the start; return the saved model and its steps. `note`
        returns a line for the bar from a row of metrics.jsonl, empty for one of no step."""
        server = self.connection.own
        with bar(self.console, title, None, self._done) as shown:

            def on_progress(step: int, steps: int, row: Mapping[str, Any]) -> None:
                self.folder.config.stat()  # raises if the folder was removed
                if text := note(row):
                    self._elapsed.save()
                    shown.to(step, text, steps)

            metrics = MetricsCallback(
                self.folder,
                self.inputs.book,
                stats or RolloutStats(),
                on_progress,
                server_cpu=server.cpu_s if server else lambda: math.nan,
                ranks=self.ranks,
            )
            trainer = build(metrics, StepProgress(shown, self.ranks.count))
            steps = train_from(trainer, self._checkpoint, self._config.max_steps)
        return save_trained(trainer, self.folder.model), steps

    def print_files(self, *names: str) -> None:
        for name in names:
            if (path := getattr(self.folder, name)).exists():
                print_line(self.console, f"{name:12} {path}")

    def write_summary(self, steps: int, trained_digest: str, **more: Any) -> RunSummary:
        metadata = self.connection.metadata
        summary = build_summary(
            self.folder,
            evaluations=summaries_of(self._results),
            train_steps=steps,
            **self._elapsed.totals(),
            seed=self._config.seed,
            standard=self._config.standard,
            config=asdict(self._config),
            git=self._git,
            versions=versions(metadata.sqlite_version),
            digests={
                "data": self.inputs.data_digest,
                "server": metadata.digest,
                "model": self.inputs.model_digest,
                "trained_model": trained_digest,
            },
            processes=self.ranks.count,
            **more,
        )
        write_json(self.folder.summary, summary)
        self.folder.seal()
        return summary


def run_job(
    config: GRPOConfig,
    options: JobOptions,
    kind: type[Job],
    *,
    console: Console,
    resume: Run | None = None,
    finish: Callable[[Run], None] = lambda run: None,
) -> RunSummary:
    """Do a whole job and return the contents of summary.json.

    Each of several processes calls this; the first one writes the run's folder, prints, and calls
    `finish` at the end. Raises `Interrupted`, or a `SQLEnvError` with a remedy.
    """
    with (
        Interrupts() as interrupts,
        joined(config, interrupts) as ranks,
        ranks.deferred(),
        ExitStack() as stack,
    ):
        if not ranks.main:
            console = Console(quiet=True)
        threads = limit_threads(ranks.local_count)
        ranks.together(lambda: check_shared_server(options.servers, ranks))
        check_same_settings(shared_settings(config, options, resume), ranks)
        inputs = ranks.together(lambda: load_inputs(config, options, kind.split))
        ranks.together(lambda: kind.check(config, inputs))
        if resume is not None:
            result = ranks.first(lambda: finished_result(resume, inputs, config))
            if result is not None:
                print_line(console, f"{resume.path} is finished; a larger --steps resumes it")
                return result
        if options.servers:  # no folder for a run that can't start
            given = replace(config, server_urls=list(options.servers))
            ranks.first(lambda: check_servers(given, inputs.data_digest))
        sampler = stack.enter_context(kind.sampled_by(config, inputs.tokenizer, ranks))
        made_by = "" if options.command == JobOptions.command else f"-{options.command}"
        label = f"{options.preset}{made_by}-seed{config.seed}"
        folder = resume or ranks.first(lambda: create_run(options.out, label))
        ranks.first(lambda: stack.enter_context(held(folder.path)))
        last = ranks.first(folder.last_checkpoint)
        start = f", resumed from {last.name if last else 'the start'}" if resume else ""
        print_line(console, f"run {folder.path}{start}")
        _describe(config, inputs, ranks, threads, console)
        stack.enter_context(_resumable(folder, options, console))
        connection = stack.enter_context(
            connected(config, options.servers, inputs, folder.server_log, ranks)
        )
        settings, metadata = connection.config, connection.metadata

        def begin() -> None:
            if resume is not None:
                check_resumed_data(folder, inputs, settings, metadata)
            save_settings(folder, settings, options, inputs, metadata, ranks.local_count)
            if resume is None:
                point_latest(folder)

        ranks.first(begin)
        summary = kind(folder, connection, options, inputs, console, ranks, sampler).run()
        if ranks.main:
            finish(folder)
        return summary


def _describe(
    config: GRPOConfig, inputs: Inputs, ranks: Ranks, threads: int, console: Console
) -> None:
    print_line(
        console,
        f"model {config.model_name}, data {config.data_dir}: {len(inputs.train)} training "
        f"questions, {len(inputs.evaluation)} eval questions; torch {torch.__version__}, "
        f"processes {ranks.count}, threads {threads}",
    )
    described = inputs.model.config.to_dict() if ranks.main else {}
    if ranks.main and (warning := shortage(described, config, ranks.local_count, ranks.count)):
        print_line(console, f"warning: {warning}")


@contextmanager
def _resumable(folder: Run, options: JobOptions, console: Console) -> Iterator[None]:
    """Say how to resume a run that is stopped in the block, or by a full or broken disk."""
    try:
        yield
    except (Exception, Interrupted) as error:
        known = isinstance(error, SQLEnvError)
        problem = None if known else storage_problem(error, folder.path)
        begun = folder.config.exists()
        command = how_to_resume(folder.path, {"command": options.command}, options.servers)
        if isinstance(error, Interrupted) and begun:
            print_line(console, f"stopped. Resume with:  {command}")
        if problem is None:
            raise
        resuming = f", then resume from the last checkpoint with:  {command}" if begun else ""
        raise RunError(problem + resuming) from error
