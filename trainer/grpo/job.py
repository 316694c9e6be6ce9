"""The main job: random baseline, untrained model, GRPO over HTTP, trained model; leaves a run's
folder.

A run that was stopped goes on with `--resume runs/<id>`: what it measured before training is read
back, training goes on from its last checkpoint, and lines that the checkpoint has not seen are
dropped and written again.
"""

import logging
import math
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from rich.console import Console

from shared.run_files import RunSummary
from shared.run_stats import MODES, Mode, eval_row
from trainer.config import GRPOConfig
from trainer.errors import ConfigError, RunError
from trainer.evaluation.evaluate import EvalResult, Play, choose, evaluate
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
    measure,
    model_play,
    random_play,
    shared_play,
)
from trainer.grpo.callbacks import (
    EvalCallback,
    LiveVisualizationCallback,
    MetricsCallback,
    spent_at,
)
from trainer.grpo.live.callback import recorded_failures
from trainer.grpo.train import build_trainer, finished, run_training_with_metrics, save_trained
from trainer.report.page import report
from trainer.rollout.loop import RolloutStats
from trainer.run.console import (
    bar,
    behaviour_table,
    cost_lines,
    number,
    success_table,
    truncation_line,
)
from trainer.run.cost import known
from trainer.run.elapsed import ElapsedTime
from trainer.run.folder import (
    Run,
    append_lines,
    checkpoint_step,
    create_run,
    keep_lines,
    point_latest,
    read_json,
    read_lines,
    write_bytes,
    write_json,
    write_text,
)
from trainer.run.plots import learning_curve
from trainer.run.summary import (
    RANK_WAIT,
    build_summary,
    git_state,
    model_digest,
    versions,
    waited_s,
)
from trainer.run.transcripts import transcripts
from trainer.runtime.cpu_budget import limit_threads
from trainer.runtime.interrupt import Interrupted, Interrupts
from trainer.runtime.ranks import Ranks, check_same_settings, joined

log = logging.getLogger(__name__)


def run_job(
    config: GRPOConfig, options: JobOptions, *, resume: Run | None = None, console: Console
) -> RunSummary:
    """Do the whole job and return what summary.json holds. Raises `Interrupted`, or a `SQLEnvError`
    with a remedy.

    Where a launcher started several processes, each calls this; the first writes the run's folder
    and speaks.
    """
    with Interrupts() as interrupts, joined(config, interrupts) as ranks, ranks.deferred():
        if not ranks.main:
            console = Console(quiet=True)
        threads = limit_threads(ranks.local_count)
        ranks.together(lambda: check_servers(options.servers, ranks))
        check_same_settings(shared_settings(config, options, resume), ranks)
        inputs = ranks.together(lambda: load_inputs(config, options))
        if (
            resume is not None
            and (result := ranks.first(lambda: _result_of(resume, inputs, config))) is not None
        ):
            _say(console, f"{_shown(resume.path)} is finished; a larger --steps goes on with it")
            return result
        run = resume or ranks.first(
            lambda: create_run(options.out, f"{options.preset}-seed{config.seed}")
        )
        _say(console, f"run {run.path}")
        _say(
            console,
            f"model {config.model_name}, data {config.data_dir}: {len(inputs.train)} training questions, "
            f"{len(inputs.evaluation)} eval questions; torch {torch.__version__} on {threads} threads"
            + (f" in each of {ranks.count} processes" if ranks.count > 1 else ""),
        )
        try:
            with connected(config, options.servers, inputs, run.server_log, ranks) as there:
                ranks.first(lambda: _begin(run, there, options, inputs, resumed=resume is not None))
                return Job(run, there, options, inputs, console, ranks).run()
        except Interrupted:
            if run.config.exists():
                _say(
                    console, f"stopped. Go on with:  {resume_command(run, options.servers, ranks)}"
                )
            raise


def _result_of(run: Run, inputs: Inputs, config: GRPOConfig) -> RunSummary | None:
    """The result of a run that has nothing left to train, None of one that goes on. `RunError`
    where it can't."""
    check_resumed_data(run, inputs, config)
    return (
        cast(RunSummary, read_json(run.summary))
        if run.summary.exists() and _done(run, config)
        else None
    )


def _begin(
    run: Run, there: Connection, options: JobOptions, inputs: Inputs, *, resumed: bool
) -> None:
    """Write the run's settings before anything is played."""
    if resumed:
        check_resumed_data(run, inputs, there.config, there.metadata)
    save_settings(run, there.config, options, inputs, there.metadata)
    if not resumed:
        point_latest(run)


def resume_command(run: Run, servers: Sequence[str], ranks: Ranks) -> str:
    """What to type to go on with a run, on the same servers where it did not start its own."""
    options = [
        "--resume",
        _shown(run.path),
        *(word for url in servers for word in ("--server", url)),
    ]
    if ranks.count == ranks.local_count > 1:
        options += ["--processes", str(ranks.count)]
    launcher = ["accelerate", "launch", "..."] if ranks.count > ranks.local_count else ["python"]
    return shlex.join([*launcher, "-m", "trainer", "train", *options])


def check_servers(servers: Sequence[str], ranks: Ranks) -> None:
    """`ConfigError` where processes on several machines would need a server that only one of them
    reaches."""
    if not servers and ranks.count > ranks.local_count:
        raise ConfigError(
            f"{ranks.count} processes, {ranks.local_count} of them on this machine, need an environment server that "
            "all can reach: start one with 'python -m env_server --host 0.0.0.0' and pass --server http://ITS-NAME:8000"
        )


def _done(run: Run, config: GRPOConfig) -> bool:
    """Whether a run with a result has nothing left to train. `RunError` where it has no checkpoint
    to go on from."""
    checkpoint = run.last_checkpoint()
    if checkpoint is None:
        raise RunError(
            f"{run.path} has its result, but its {run.checkpoints.name}/ is gone, so it can't go on: "
            "begin a run without --resume"
        )
    return finished(checkpoint, config.max_steps)


def _say(console: Console, line: str) -> None:
    """Print a line that may hold a path, letter by letter."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _shown(path: Path) -> str:
    """A path as short as it can be typed from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


class Job:
    """The phases of one run, over an open client. `run` does them in order."""

    def __init__(
        self,
        run: Run,
        there: Connection,
        options: JobOptions,
        inputs: Inputs,
        console: Console,
        ranks: Ranks,
    ) -> None:
        self._run, self._options, self._inputs, self._there = run, options, inputs, there
        self._config, self._client, self._metadata = there.config, there.client, there.metadata
        self._console, self._ranks = console, ranks
        self._few = choose(inputs.evaluation, options.eval_points)
        self._results: dict[str, dict[str, EvalResult]] = {}
        self._clock = ElapsedTime(
            run.path / "wall.json", lambda: there.own.restarts if there.own else 0
        )
        self._checkpoint = self._known_checkpoint()
        self._spent = spent_at(self._checkpoint)
        # of the code that was loaded: it may change on disk while the run goes on
        self._git = git_state()

    def run(self) -> RunSummary:
        """All phases; what summary.json holds. Every process does them, and the first one writes."""
        with self._clock if self._ranks.main else nullcontext():
            digests = {
                "data": self._inputs.data_digest,
                "server": self._metadata.digest,
                "model": self._same_everywhere(self._inputs.model_digest),
            }
            self._measure_whole("random", "sampled", 0, random_play(self._config, self._client))
            for mode in MODES:
                self._measure_whole("before", mode, 0, self._play(self._inputs.model, mode))
            model, steps = self._train()
            digests["trained_model"] = self._same_everywhere(model_digest(model))
            for mode in MODES:
                self._measure_whole("after", mode, steps, self._play(model, mode))
            self._curve_point(steps, {mode: self._few_of("after", mode) for mode in MODES})
            return self._ranks.first(lambda: self._finish(steps, digests))

    def _known_checkpoint(self) -> Path | None:
        """The checkpoint that the first process goes on from. `RunError` where another one can't
        see it."""
        path = self._ranks.first(self._run.last_checkpoint)

        def check() -> None:
            if path is not None and not (path / "trainer_state.json").is_file():
                raise RunError(
                    f"can't see {path}: put --out on a file system that all machines share"
                )

        self._ranks.together(check)
        return path

    def _same_everywhere(self, digest: str) -> str:
        """The digest of this process's weights. `RunError` where another's are others."""
        if len(set(self._ranks.gather(digest))) > 1:
            raise RunError(
                "the processes hold different weights: is the model the same on every machine?"
            )
        return digest

    def _measure_whole(self, phase: str, mode: Mode, step: int, play: Play) -> None:
        """Measure the whole eval set, or read back what an earlier session of this run measured."""
        path = self._run.evaluation(phase, mode)
        result = self._ranks.first(lambda: EvalResult.read(path) if path.exists() else None)
        if result is None:
            prompts, book = self._inputs.evaluation, self._inputs.book
            title, batch = (
                f"{phase} ({mode})",
                batch_of(self._inputs.model, self._config, self._ranks),
            )
            limit, play = self._config.max_lost_fraction, shared_play(play, self._ranks)
            result = measure(
                self._console,
                title,
                mode,
                play,
                prompts,
                book,
                batch=batch,
                max_lost_fraction=limit,
            )
            if self._ranks.main:
                keep_lines(
                    self._run.episodes, lambda line: (line["phase"], line["mode"]) != (phase, mode)
                )
                append_lines(
                    self._run.episodes, (one.as_line(phase, mode, step) for one in result.episodes)
                )
                result.write(path)
        self._results.setdefault(phase, {})[mode] = result

    def _play(self, model: Any, mode: Mode) -> Play:
        return model_play(model, self._inputs.tokenizer, self._config, self._client, mode)

    def _few_of(self, phase: str, mode: Mode) -> EvalResult:
        """The part of a whole measurement that the curve's small ones are of."""
        return self._results[phase][mode].subset({str(row["question_id"]) for row in self._few})

    def _curve_point(
        self, step: int, results: Mapping[str, EvalResult], *, seconds: float = 0.0
    ) -> None:
        """A row of metrics.jsonl for one point of the eval curve, which took `seconds`, and the
        curve as it is by now.

        Step 0 and the last step take theirs from the evaluations of the whole set.
        """
        if not self._ranks.main:
            return
        train_s = known(self._spent.train_s) if step else 0.0
        row: dict[str, Any] = {
            "step": step,
            "eval_n": len(self._few),
            "train_s": train_s,
            "eval_s": round(seconds, 4),
        }
        for mode, result in results.items():
            row |= eval_row(mode, result.episodes)
        append_lines(self._run.metrics, [row])
        self._draw(step)

    def _train(self) -> tuple[Any, int]:
        """Train, or go on, and save the model. The trained model and its number of steps."""
        checkpoint = self._checkpoint
        done = checkpoint_step(checkpoint) if checkpoint else 0
        if self._ranks.main:
            self._forget_after(done)
        stats = RolloutStats()
        with bar(self._console, "GRPO") as shown:

            def on_progress(step: int, steps: int, row: Mapping[str, Any]) -> None:
                if "success" in row:
                    self._clock.save()
                    note = f"reward {number(row.get('reward'))} success {number(row['success'], '.1%')}"
                    shown.to(step, note, steps)

            own = self._there.own
            log = MetricsCallback(
                self._run,
                self._inputs.book,
                stats,
                on_progress,
                spent=self._spent,
                server_cpu=own.cpu_s if own else lambda: math.nan,
                ranks=self._ranks,
            )
            live = LiveVisualizationCallback(
                self._config,
                self._inputs,
                shared_play(self._play(self._inputs.model, "greedy"), self._ranks),
                baselines=self._results,
                bar=shown,
                folder=self._run.live,
                rows=lambda: list(read_lines(self._run.metrics)),
                ranks=self._ranks,
            )
            trainer = build_trainer(
                self._inputs.model,
                self._inputs.tokenizer,
                self._config,
                self._inputs.train,
                client=self._client,
                stats=stats,
                on_rows=log.rows,
                ranks=self._ranks,
                callbacks=[
                    EvalCallback(self._options.eval_every, self._ranks, self._small_eval),
                    live,
                    log,
                ],
                output_dir=str(self._run.checkpoints),
                run_name=self._run.id,
            )
            self._curve_point(0, {mode: self._few_of("before", mode) for mode in MODES})
            if finished(checkpoint, self._config.max_steps):
                trainer._load_from_checkpoint(str(checkpoint))  # train() would do one more step
            else:
                run_training_with_metrics(trainer, resume_from=checkpoint)
                done = int(trainer.state.global_step)
        return save_trained(trainer, self._run.model), done

    def _small_eval(self, step: int) -> None:
        """One point of the eval curve, in the middle of training."""
        began, results = time.monotonic(), dict[str, EvalResult]()
        batch, limit = (
            batch_of(self._inputs.model, self._config, self._ranks),
            self._config.max_lost_fraction,
        )
        for mode in MODES:
            play = shared_play(self._play(self._inputs.model, mode), self._ranks)
            results[mode] = evaluate(
                play, self._few, self._inputs.book, mode=mode, batch=batch, max_lost_fraction=limit
            )
            if self._ranks.main:
                lines = (one.as_line("eval", mode, step) for one in results[mode].episodes)
                append_lines(self._run.episodes, lines)
        self._curve_point(step, results, seconds=time.monotonic() - began)

    def _forget_after(self, done: int) -> None:
        """Drop what an earlier session wrote of steps that its last checkpoint has not seen, and
        its result."""

        def known(row: Mapping[str, Any]) -> bool:
            step = int(row["step"])
            if "phase" in row:
                return row["phase"] in ("random", "before") or (
                    step <= done if row["phase"] == "train" else step < done
                )
            if "eval_n" in row:
                return 0 < step < done
            return step <= done and "train_runtime" not in row

        keep_lines(self._run.episodes, known)
        keep_lines(self._run.metrics, known)
        for mode in MODES:
            self._run.evaluation("after", mode).unlink(missing_ok=True)
        for path in (
            self._run.summary,
            self._run.transcripts,
            self._run.report,
            self._run.checksums,
        ):
            path.unlink(missing_ok=True)

    def _summaries(self) -> dict[str, dict[str, Any]]:
        return {
            phase: {mode: one.summary() for mode, one in modes.items()}
            for phase, modes in self._results.items()
        }

    def _draw(self, step: int) -> None:
        found = self._summaries()
        picture = learning_curve(
            list(read_lines(self._run.metrics)),
            title=f"GRPO of {Path(self._config.model_name).name}, seed {self._config.seed}  ({self._run.id})",
            random=found.get("random"),
            before=found.get("before"),
            after=found.get("after"),
            steps=step,
        )
        write_bytes(self._run.curve, picture)

    def _draw_report(self) -> None:
        """The page of the run. It can be drawn anew, so what goes wrong in it does not end a run
        that is done."""
        try:
            write_text(self._run.report, report(self._run.path))
        except Exception:
            log.exception(
                "the report was not drawn; 'python -m trainer report %s' tries again",
                _shown(self._run.path),
            )

    def _finish(self, steps: int, digests: Mapping[str, str]) -> RunSummary:
        texts = {
            row["question_id"]: self._inputs.book.text(row["question_id"])
            for row in self._inputs.evaluation
        }
        page = transcripts(
            texts,
            self._results["random"]["sampled"].by_question(),
            self._results["before"]["greedy"].by_question(),
            self._results["after"]["greedy"].by_question(),
            heading=f"Transcripts of {self._run.id}",
        )
        write_text(self._run.transcripts, page)
        summary = build_summary(
            self._run,
            evaluations=self._summaries(),
            train_steps=steps,
            spent=self._spent,
            wall_s=self._clock.total(),
            seed=self._config.seed,
            config=asdict(self._config),
            git=self._git,
            versions=versions(self._metadata.sqlite_version),
            digests=digests,
            sessions=self._clock.sessions,
            server_restarts=self._clock.restarts(),
            processes=self._ranks.count,
            live_failures=recorded_failures(self._run.live),
            **({RANK_WAIT: waited_s(self._run)} if self._ranks.count > 1 else {}),
        )
        write_json(self._run.summary, summary)
        self._run.seal()
        self._draw_report()
        found = self._summaries()
        self._console.print(
            success_table(
                f"Success in % on {len(texts)} eval questions, with 95 % intervals", found
            )
        )
        trained = {phase: found[phase] for phase in ("before", "after")}
        self._console.print(behaviour_table("What changed in behaviour", trained))
        for line in cost_lines(summary["cost"]):
            _say(self._console, line)
        if outgrown := truncation_line(summary):
            _say(self._console, outgrown)
        for name in ("summary", "curve", "transcripts", "report", "model"):
            path = getattr(self._run, name)
            if path.exists():
                _say(self._console, f"{name:12} {_shown(path)}")
        return summary
