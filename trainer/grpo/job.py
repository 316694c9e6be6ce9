"""The training job: evaluations before training, GRPO over HTTP, evaluations after it, results.

A resumed run reads measurements back and continues training from the last checkpoint.
"""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from rich.console import Console

from shared.console import percent, print_line
from shared.errors import SQLEnvError
from shared.run_files import RunSummary
from shared.run_stats import MODES, Mode, eval_row
from trainer.config import GRPOConfig
from trainer.errors import RunError, storage_problem
from trainer.evaluation.evaluate import (
    EvalResult,
    Play,
    Results,
    choose,
    evaluate,
    summaries_of,
    unfinished,
)
from trainer.evaluation.inputs import (
    Inputs,
    JobOptions,
    check_resumed_data,
    load_inputs,
    save_settings,
    shared_settings,
)
from trainer.evaluation.measure import (
    Connection,
    batch_of,
    connected,
    model_play,
    play_with,
    shared_play,
)
from trainer.grpo.generation import GenerationServer, generation_server
from trainer.grpo.metrics_log import EvalCallback, MetricsCallback, StepProgress
from trainer.grpo.resume import drop_after, finished_result, shared_checkpoint
from trainer.grpo.train import (
    build_trainer,
    check_enough_questions,
    finished,
    save_trained,
    train_from,
)
from trainer.report.page import run_page
from trainer.rollout.generators.policies import RandomPolicy
from trainer.rollout.loop import RolloutStats
from trainer.rollout.servers import check_servers
from trainer.run.console import behaviour_table, limit_lines, number, success_table
from trainer.run.cost import ElapsedTime, known, spent
from trainer.run.folder import (
    Run,
    append_lines,
    checkpoint_step,
    create_run,
    held,
    how_to_resume,
    keep_lines,
    point_latest,
    read_lines,
    write_bytes,
    write_json,
    write_text,
)
from trainer.run.plots import headline, learning_curve
from trainer.run.progress import bar
from trainer.run.summary import build_summary, git_state, model_digest, versions
from trainer.run.transcripts import transcripts
from trainer.runtime.cpu_budget import limit_threads
from trainer.runtime.interrupt import Interrupted, Interrupts
from trainer.runtime.memory import shortage
from trainer.runtime.ranks import Ranks, check_same_settings, check_shared_server, joined

log = logging.getLogger(__name__)


def run_job(
    config: GRPOConfig,
    options: JobOptions,
    *,
    resume: Run | None = None,
    console: Console,
    kind: "type[Job] | None" = None,
) -> RunSummary:
    """Do the whole job, of a `kind` (`Job`), and return the contents of summary.json.

    Raises `Interrupted`, or a `SQLEnvError` with a remedy. Each of several processes calls this;
    the first one writes the run's folder and prints.
    """
    kind = kind or Job
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
        generation = stack.enter_context(generation_server(config, inputs.tokenizer, ranks))
        made_by = "" if options.command == JobOptions.command else f"-{options.command}"
        label = f"{options.preset}{made_by}-seed{config.seed}"
        folder = resume or ranks.first(lambda: create_run(options.out, label))
        ranks.first(lambda: stack.enter_context(held(folder.path)))
        last = ranks.first(folder.last_checkpoint)
        start = f", resumed from {last.name if last else 'the start'}" if resume else ""
        print_line(console, f"run {folder.path}{start}")
        print_line(
            console,
            f"model {config.model_name}, data {config.data_dir}: {len(inputs.train)} training "
            f"questions, {len(inputs.evaluation)} eval questions; torch {torch.__version__}, "
            f"processes {ranks.count}, threads {threads}",
        )
        if ranks.main:
            described = inputs.model.config.to_dict()
            if warning := shortage(described, config, ranks.local_count, ranks.count):
                print_line(console, f"warning: {warning}")

        def write_settings(connection: Connection) -> None:
            """Write the run's settings before anything is played."""
            connected_config, metadata = connection.config, connection.metadata
            if resume is not None:
                check_resumed_data(folder, inputs, connected_config, metadata)
            save_settings(folder, connected_config, options, inputs, metadata, ranks.local_count)
            if resume is None:
                point_latest(folder)

        try:
            with connected(config, options.servers, inputs, folder.server_log, ranks) as connection:
                ranks.first(lambda: write_settings(connection))
                return kind(folder, connection, options, inputs, console, ranks, generation).run()
        except (Exception, Interrupted) as error:
            known = isinstance(error, SQLEnvError)
            problem = None if known else storage_problem(error, folder.path)
            begun = folder.config.exists()
            settings = {"command": options.command}
            command = how_to_resume(folder.path, settings, options.servers)
            if isinstance(error, Interrupted) and begun:
                print_line(console, f"stopped. Resume with:  {command}")
            if problem is None:
                raise
            resuming = f", then resume from the last checkpoint with:  {command}" if begun else ""
            raise RunError(problem + resuming) from error


@dataclass
class Job:
    """One run over an open client: its phases in `run`, their results in `folder`."""

    folder: Run
    connection: Connection
    options: JobOptions
    inputs: Inputs
    console: Console
    ranks: Ranks
    generation: GenerationServer | None = None  # what samples the rollouts, if not this process
    split: ClassVar[str | None] = "eval"  # of the questions that are measured

    def __post_init__(self) -> None:
        self._config, self._client = self.connection.config, self.connection.client
        self._curve_questions = choose(self.inputs.evaluation, self.options.eval_points)
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
        check_enough_questions(len(inputs.train), config)

    def run(self) -> RunSummary:
        """Do every phase and return the contents of summary.json, in every process."""
        base = self.inputs.model
        with self._elapsed if self.ranks.main else nullcontext():
            self._check_same_weights(self.inputs.model_digest)
            if self.generation is not None:
                self.generation.start(base, self.folder.checkpoints / "served_weights")
            if self.ranks.main:
                drop_after(self.folder, self._done, self._trained)
            chance = play_with(self._config, self._client, policy=RandomPolicy())
            self._measure("random", "sampled", shared_play(chance, self.ranks))
            for mode in MODES:
                self._measure("before", mode, self._play(base, mode))
            self._add_curve_point(0, self._results["before"])
            trained, steps = self._train(base)
            digest = model_digest(trained)
            self._check_same_weights(digest)
            for mode in MODES:
                self._measure("after", mode, self._play(trained, mode), steps)
            self._add_curve_point(steps, self._results["after"])
            return self.ranks.first(lambda: self._write_results(steps, digest))

    def _check_same_weights(self, digest: str) -> None:
        """Raise `RunError` if another process has other weights than this one."""
        if len(set(self.ranks.gather(digest))) > 1:
            raise RunError(
                "the processes hold different weights: is the model the same on every machine?"
            )

    def _play(self, model: Any, mode: Mode) -> Play:
        play = model_play(model, self.inputs.tokenizer, self._config, self._client, mode)
        return shared_play(play, self.ranks)

    def _measure(self, phase: str, mode: Mode, play: Play, step: int = 0) -> None:
        """Measure the whole eval set, or read what an earlier session of this run measured."""
        path = self.folder.evaluation(phase, mode)
        result = self.ranks.first(lambda: EvalResult.read(path) if path.exists() else None)
        if result is None:
            result = self._evaluate(play, mode, self.inputs.evaluation, f"{phase} ({mode})", path)
            if self.ranks.main:
                episodes = self.folder.episodes
                keep_lines(episodes, lambda line: (line["phase"], line["mode"]) != (phase, mode))
                append_lines(episodes, (one.as_line(phase, mode, step) for one in result.episodes))
                result.write(path)
                unfinished(path).unlink(missing_ok=True)
        self._results.setdefault(phase, {})[mode] = result

    def _evaluate(
        self,
        play: Play,
        mode: Mode,
        questions: Sequence[Any],
        title: str = "",
        path: Path | None = None,
    ) -> EvalResult:
        """Measure on `questions`, with a progress bar if it has a title.

        With the `path` of the result, episodes are kept beside it as they end, and those of an
        earlier session are not played again.
        """

        def earlier() -> EvalResult | None:
            return None if path is None else EvalResult.read_unfinished(path, mode)

        def keep(result: EvalResult) -> None:
            if path is not None and self.ranks.main:
                result.append_unfinished(path)

        return evaluate(
            play,
            questions,
            self.inputs.book,
            mode=mode,
            title=title,
            console=self.console if title else None,
            batch=batch_of(self.inputs.model, self._config, self.ranks),
            max_lost_fraction=self._config.max_lost_fraction,
            step_budget=self._config.step_budget,
            earlier=self.ranks.first(earlier),
            keep=keep,
            processes=self.ranks.count,
        )

    def _train(self, model: Any) -> tuple[Any, int]:
        """Train from the last checkpoint or the start; return the saved model and its steps."""
        stats, server = RolloutStats(), self.connection.own
        with bar(self.console, "GRPO", None, self._done) as shown:
            progress = StepProgress(shown, self.ranks.count)

            def on_progress(step: int, steps: int, row: Mapping[str, Any]) -> None:
                if self.ranks.main:
                    self.folder.config.stat()  # raises if the folder was removed
                if "success" in row:
                    self._elapsed.save()
                    reward, success = number(row.get("reward")), percent(row["success"])
                    shown.to(step, f"reward {reward} success {success}", steps)

            metrics = MetricsCallback(
                self.folder,
                self.inputs.book,
                stats,
                on_progress,
                server_cpu=server.cpu_s if server else lambda: math.nan,
                ranks=self.ranks,
            )
            curve = EvalCallback(self.options.eval_every, self.ranks, self._measure_curve_point)
            trainer = build_trainer(
                model,
                self.inputs.tokenizer,
                self._config,
                self.inputs.train,
                client=self._client,
                stats=stats,
                on_rows=metrics.rows,
                ranks=self.ranks,
                sampler=self.generation,
                observer=progress.plays,
                callbacks=[curve, metrics, progress],
                output_dir=str(self.folder.checkpoints),
                run_name=self.folder.id,
            )
            steps = train_from(trainer, self._checkpoint, self._config.max_steps)
        return save_trained(trainer, self.folder.model), steps

    def _measure_curve_point(self, step: int) -> None:
        """Measure one point of the eval curve in the middle of training."""
        start, results = time.monotonic(), dict[str, EvalResult]()
        for mode in MODES:
            play = self._play(self.inputs.model, mode)
            results[mode] = self._evaluate(play, mode, self._curve_questions)
            if self.ranks.main:
                lines = (one.as_line("eval", mode, step) for one in results[mode].episodes)
                append_lines(self.folder.episodes, lines)
        self._add_curve_point(step, results, seconds=time.monotonic() - start)

    def _add_curve_point(
        self, step: int, results: Mapping[str, EvalResult], *, seconds: float = 0.0
    ) -> None:
        """Write one point of the eval curve, which took `seconds`, and redraw the curve.

        Of `results`, the episodes of the curve's questions count.
        """
        if not self.ranks.main:
            return
        row: dict[str, Any] = {
            "step": step,
            "eval_n": len(self._curve_questions),
            "train_s": known(spent(read_lines(self.folder.metrics))["train_s"]) if step else 0.0,
            "eval_s": round(seconds, 4),
        }
        asked = {one["question_id"] for one in self._curve_questions}
        for mode, result in results.items():
            row |= eval_row(mode, (one for one in result.episodes if one.question_id in asked))
        append_lines(self.folder.metrics, [row])
        lines, summaries = list(read_lines(self.folder.metrics)), summaries_of(self._results)
        title = headline(Path(self._config.model_name).name, self._config.seed, summaries)
        curve = learning_curve(lines, summaries, title=title, steps=step)
        write_bytes(self.folder.curve, curve)

    def _write_results(self, steps: int, trained_digest: str) -> RunSummary:
        """Write transcripts.md, summary.json and report.html, and print the result."""
        ids = [str(row["question_id"]) for row in self.inputs.evaluation]
        page = transcripts(
            {question_id: self.inputs.book.text(question_id) for question_id in ids},
            self._results["random"]["sampled"].by_question(),
            self._results["before"]["greedy"].by_question(),
            self._results["after"]["greedy"].by_question(),
            heading=f"Transcripts of {self.folder.id}",
        )
        write_text(self.folder.transcripts, page)
        summary = self._write_summary(steps, trained_digest)
        try:
            write_text(self.folder.report, run_page(self.folder.path)[0])
        except Exception:  # the run is done, and its report can be drawn again
            log.exception(
                "no report was drawn; try again: python -m trainer report %s", self.folder.path
            )
        phases = summaries_of(self._results)
        title = f"Success in % on {len(ids)} eval questions, with 95 % intervals"
        self.console.print(success_table(title, phases))
        trained = {phase: phases[phase] for phase in ("before", "after")}
        self.console.print(behaviour_table("What changed in behaviour", trained))
        for line in limit_lines(summary):
            print_line(self.console, line)
        self._print_files("summary", "curve", "transcripts", "report", "model")
        return summary

    def _print_files(self, *names: str) -> None:
        """Print the paths of those of the run's files `names` that exist."""
        for name in names:
            if (path := getattr(self.folder, name)).exists():
                print_line(self.console, f"{name:12} {path}")

    def _write_summary(self, steps: int, trained_digest: str, **more: Any) -> RunSummary:
        """Write summary.json, with the extra keys `more`, and seal the run's folder."""
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
