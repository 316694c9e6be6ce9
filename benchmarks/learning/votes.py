"""Best of 8: what the model before training reaches with eight samples per question."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.learning.bench import Bench, Result
from shared.actions import parse_action
from shared.run_stats import ANSWERED, PARTS, Rate
from trainer.evaluation.evaluate import EvalResult
from trainer.evaluation.measure import batch_of, measure_draws, model_play
from trainer.run.folder import Run
from trainer.run.records import EpisodeRecord
from trainer.runtime.models import load_model_and_tokenizer

DRAWS = 8


def answer_of(episode: EpisodeRecord) -> str | None:
    """Return the normalised answer that ended an episode; None if none did."""
    if episode.outcome not in ANSWERED or not episode.actions:
        return None
    return normal(parse_action(episode.actions[-1]).argument)


def normal(answer: str) -> str:
    """Return an answer without differences of case, white space and number format."""
    text = " ".join(answer.split()).casefold()
    try:
        return repr(float(text))
    except ValueError:
        return text


def majority(episodes: Iterable[EpisodeRecord]) -> EpisodeRecord | None:
    """Return the first episode with the most frequent answer; the earliest answer wins a tie."""
    votes: dict[str, list[EpisodeRecord]] = defaultdict(list)
    for episode in episodes:
        if (answer := answer_of(episode)) is not None:
            votes[answer].append(episode)
    winners = max(votes.values(), key=len, default=None)
    return winners[0] if winners else None


def any_right(episodes: Iterable[EpisodeRecord]) -> bool:
    return any(episode.correct for episode in episodes)


def vote_right(episodes: Iterable[EpisodeRecord]) -> bool:
    chosen = majority(episodes)
    return chosen is not None and chosen.correct


def summarise(result: EvalResult, right: Callable[[list[EpisodeRecord]], bool]) -> dict[str, Any]:
    """Return `EvalResult.summary()` of all draws with rates over questions.

    `right` judges the draws of one question. Lost episodes neither count nor vote; a question that
    lost all of its draws is left out.
    """
    by_question: dict[str, list[EpisodeRecord]] = defaultdict(list)
    for episode in result.finished:
        by_question[episode.question_id].append(episode)
    summary: dict[str, Any] = {**result.summary()}
    del summary["by_difficulty"], summary["mean_reward"]  # of episodes
    for part in PARTS:
        draws = [one for one in by_question.values() if part in ("overall", one[0].part)]
        summary[part] = Rate.of(map(right, draws)).as_dict()
    return summary


def control(bench: Bench, folder: Run) -> Result:
    """Play eight sampled episodes per question; the first is that of the run's own `before`."""
    config = bench.connection.config
    model, tokenizer = load_model_and_tokenizer(config)
    play = model_play(model, tokenizer, config, bench.connection.client, "sampled")
    prompts, book, batch = bench.inputs.evaluation, bench.inputs.book, batch_of(model, config)
    started = time.process_time()
    result = measure_draws(
        bench.console, f"best of {DRAWS}", play, prompts, book, draws=DRAWS, batch=batch
    )
    seconds = time.process_time() - started
    result.write(folder.evaluation("after", "sampled"))
    policies = {
        "pass_at_8": {"sampled": summarise(result, any_right)},
        "vote_of_8": {"sampled": summarise(result, vote_right)},
    }
    one_draw = result.rate().as_dict()
    return Result(policies, seconds, {"draws": DRAWS, "success_of_one_draw": one_draw})
