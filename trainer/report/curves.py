"""The charts of a run, from the rows of metrics.jsonl and the evaluations."""

from typing import Any

from shared.console import percent
from trainer.config import REWARD_WEIGHTS
from trainer.report.run_reader import LoadedRun
from trainer.run.charts import Chart, Series
from trainer.run.plots import (
    SMOOTHED,
    logged_and_mean,
    points,
    reward_chart,
    success_chart,
    weighted,
)

TIME_PARTS = {
    "generate_s": "generation",
    "env_wait_s": "waiting for the environment",
    "rank_wait_s": "waiting for other processes",
    "other_s": "rest of the rollout",
    "update_s": "update",
}
NO_KL = "The run logged no KL divergence: beta is 0, so the loss has no KL term."
# key of metrics.jsonl -> title, name of the curve
LOGGED = {
    "loss": ("Policy loss", "policy gradient loss"),
    "entropy": ("Entropy, nats per token", "entropy"),
    "kl": ("KL divergence from the start", "KL to the reference model"),
    "grad_norm": ("Gradient norm, before clipping", "norm"),
    "learning_rate": ("Learning rate", "learning rate"),
    "completions/mean_length": ("Tokens that the model wrote per training episode", "mean"),
    "steps_per_episode": ("Actions per training episode", "mean"),
    "env_errors": ("Environment errors per log event", "errors"),
    "parse_failures": ("Texts without an action per log event", "parse failures"),
    "one_verdict_groups": ("Groups with one verdict: all right or all wrong", "share"),
}


def curves(run: LoadedRun) -> list[Chart]:
    """Return the run's charts in the page's order; one without values is empty, and says why."""
    return [
        success_chart(run.metrics, run.summaries, run.last_step),
        reward_chart(run.metrics, run.summaries),
        reward_layers(run),
        *(_logged(run, name, *texts) for name, texts in LOGGED.items()),
    ]


def _logged(run: LoadedRun, name: str, title: str, label: str) -> Chart:
    more: dict[str, Any] = {"bounds": (None if name == "loss" else 0.0, None)}
    if name == "one_verdict_groups":
        more |= {"form": percent, "bounds": (0.0, 1.0)}
    if name == "kl" and run.config.get("beta") == 0:
        more["absent"] = NO_KL
    found = points(run.metrics, name)
    if name == "learning_rate":  # exact: a mean would hide its schedule
        lines, note = [Series(label, found, "blue")], ""
    else:
        lines, note = logged_and_mean(found, label, "blue"), SMOOTHED
    return Chart(name.rpartition("/")[2].replace("_", "-"), title, lines, note=note, **more)


def reward_layers(run: LoadedRun) -> Chart:
    """Return the three layers of the training reward, as weighted in it."""
    lines = []
    for name, colour in zip(REWARD_WEIGHTS, ("blue", "orange", "green"), strict=True):
        values = points(run.metrics, f"rewards/reward_{name}/mean", REWARD_WEIGHTS[name])
        lines += logged_and_mean(values, weighted(name), colour)
    return Chart("reward-parts", "Reward by layer, training episodes", lines, note=SMOOTHED)


def time_split(run: LoadedRun) -> list[tuple[str, float]]:
    """Return (activity, seconds of training). The parts add up to rollout and update."""
    known = {name: run.totals.get(name, 0.0) for name in TIME_PARTS}
    rollout = sum(known[name] for name in ("generate_s", "env_wait_s", "rank_wait_s"))
    known["other_s"] = max(0.0, run.totals["rollout_s"] - rollout)
    return [(label, known[name]) for name, label in TIME_PARTS.items() if known[name]]
