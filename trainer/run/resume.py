"""Resuming a run: where it stopped, and what to keep of its files."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from shared.dataset import data_digest
from shared.errors import SQLEnvError
from shared.models import ServerMetadata
from shared.run_files import RunSummary
from trainer.config.settings import GRPOConfig
from trainer.errors import RunError
from trainer.run.folder import Run, changes, keep_lines, read_json, runs_in
from trainer.run.inputs import Inputs, JobOptions, digests_of
from trainer.run.records import keep_records, read_observations
from trainer.runtime.ranks import Ranks
from trainer.runtime.training import finished

# these change how an update is computed, not its result
FOR_MEMORY = (
    *("per_device_train_batch_size", "gradient_accumulation_steps", "gradient_checkpointing"),
)
# results with equal ones compare
DIGESTS = ("data_digest", "model_digest", "prompt_digest", "server_digest")


def resumed_settings(
    run: Run,
    servers: tuple[str, ...],
    overrides: Mapping[str, Any],
    kind: type[JobOptions] = JobOptions,
) -> tuple[GRPOConfig, JobOptions]:
    """Return the settings of a run to resume, whose options are of a `kind`. `overrides` may hold
    `max_steps`, `FOR_MEMORY` and another `generation_url`."""
    saved = read_json(run.config)
    if isinstance(saved, dict) and (command := saved.get("command", "train")) != kind.command:
        raise RunError(
            f"{run.path} was made by 'python -m trainer {command}': resume it with that command"
        )
    kept = {*DIGESTS, "processes"}
    if isinstance(saved, dict) and "config" in saved and (old := kept - saved.keys()):
        raise RunError(
            f"{run.path} is of an older version (its config.json has no {min(old)}): resume it "
            "with the version that wrote it, or start a run without --resume"
        )
    try:
        config = GRPOConfig(**saved["config"])
        options = kind(saved["preset"], run.path.parent, servers, **saved["options"])
    except (KeyError, TypeError, SQLEnvError) as error:
        raise RunError(f"{run.config} is not a run's settings: {error}") from error
    if changed := sorted(set(overrides) - {"max_steps", "generation_url", *FOR_MEMORY}):
        raise RunError(
            f"a resumed run keeps its settings, so {', '.join(changed)} can't change: "
            "start a run without --resume"
        )
    other = config.override(**overrides)
    if other.rollouts_per_step != config.rollouts_per_step:
        raise RunError(
            f"a resumed run keeps its {config.rollouts_per_step} rollouts per step, and "
            "per_device_train_batch_size x gradient_accumulation_steps would be "
            f"{other.rollouts_per_step}"
        )
    return other, options


def check_resumed_data(
    run: Run, inputs: Inputs, config: GRPOConfig, metadata: ServerMetadata | None = None
) -> None:
    first, servers = read_json(run.config), ", ".join(config.server_urls)
    named = {
        "data_digest": f"the data in {config.data_dir}",
        "model_digest": f"the model {config.model_name}",
        "prompt_digest": "what the model reads, or how its turns are read (by its code)",
        "server_digest": f"the environment server at {servers} (its rules, limits or SQLite)",
    }
    for name, digest in digests_of(config, inputs, metadata).items():
        if first[name] != digest:
            if name == "server_digest" and metadata is not None:
                was = first.get("server_rules", {})
                parts = [part for part, now in metadata.rules.items() if was.get(part) != now]
                named[name] += f": {', '.join(parts)}"
            raise RunError(
                f"{named[name]} has changed since {run.id} started, so its results would not be "
                "comparable: start a run without --resume"
            )


def finished_result(folder: Run, inputs: Inputs, config: GRPOConfig) -> RunSummary | None:
    check_resumed_data(folder, inputs, config)
    next(read_observations(folder.observations), None)  # raises for the format of older versions
    if not folder.finished:
        return None
    checkpoint = folder.last_checkpoint()
    if checkpoint is None:
        raise RunError(
            f"{folder.path} has a result, but no {folder.checkpoints.name}/ to resume from: "
            "start a run without --resume"
        )
    if not finished(checkpoint, config.max_steps):
        return None
    return cast(RunSummary, read_json(folder.summary))


def find_run(config: GRPOConfig, options: JobOptions) -> tuple[Run | None, str]:
    """Return the newest run in `options.out` with these settings, and a line for the user.
    `run_job` compares the digests of the model and of the servers."""
    other = ""
    for run in runs_in(options.out):
        try:
            first = _deciding(*resumed_settings(run, (), {}))
        except RunError:  # of another command
            continue
        differing = changes(first, _deciding(config, options))
        if not differing and read_json(run.config)["data_digest"] != data_digest(config.data_dir):
            differing.append(f"the data in {config.data_dir} have changed")
        if not differing:
            state = "finished: nothing is trained" if run.finished else "not finished: resuming it"
            return run, f"{run.path} has these settings and is {state}"
        other = other or f": {run.path} has other settings ({', '.join(differing)})"
    return None, f"starting a new run{other or f': {options.out} holds none with these settings'}"


def _deciding(config: GRPOConfig, options: JobOptions) -> dict[str, Any]:
    free = (*FOR_MEMORY, "server_urls", "output_dir", "generation_url")
    decides = {name: value for name, value in asdict(config).items() if name not in free}
    return {**decides, "rollouts_per_step": config.rollouts_per_step, **options.saved}


def shared_checkpoint(folder: Run, ranks: Ranks) -> Path | None:
    """Return the checkpoint that all processes resume from: the last one that process 0 sees."""
    path = ranks.first(folder.last_checkpoint)

    def check() -> None:
        if path is not None and not (path / "trainer_state.json").is_file():
            raise RunError(f"can't see {path}: put --out on a file system that all machines share")

    ranks.together(check)
    return path


def drop_after(folder: Run, done: int, trained: bool) -> None:
    """Delete what an earlier session wrote about steps after `done`, and the run's results. If all
    steps are done (`trained`), measurements after training are kept."""

    def keep(row: Mapping[str, Any]) -> bool:
        step = int(row["step"])
        if "phase" in row:  # an episode
            if row["phase"] == "train":
                return step <= done
            measured = ("random", "before", "after") if trained else ("random", "before")
            return row["phase"] in measured or step < done
        if "eval_n" in row:  # a point of the eval curve
            return 0 < step < done
        return step <= done and "train_runtime" not in row

    keep_records(folder, keep)
    keep_lines(folder.metrics, keep)
    for path in (folder.summary, folder.transcripts, folder.report, folder.checksums):
        path.unlink(missing_ok=True)
