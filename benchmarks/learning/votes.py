"""Best of 8: what the untrained model can do when it may try eight times. Nothing is trained."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.learning.bench import Bench, Result
from shared.actions import parse_action
from shared.run_stats import ANSWERED, SEEN, UNSEEN, Rate
from trainer.evaluation.evaluate import BATCH, EvalResult
from trainer.evaluation.measure import batch_of, measure, model_play
from trainer.run.folder import Run
from trainer.run.records import EpisodeRecord
from trainer.runtime.models import load_model_and_tokenizer

DRAWS = 8


def answer_of(episode: EpisodeRecord) -> str | None:
    """The answer that ended an episode, in a form in which equal answers are equal texts; None
    where none did."""
    if episode.outcome not in ANSWERED or not episode.actions:
        return None
    return normal(parse_action(episode.actions[-1]).argument)


def normal(answer: str) -> str:
    """An answer without differences that say nothing: case, white space, and how a number is
    written."""
    text = " ".join(answer.split()).casefold()
    try:
        return repr(float(text))
    except ValueError:
        return text


def majority(episodes: Iterable[EpisodeRecord]) -> EpisodeRecord | None:
    """The first episode that gave the answer most often given; the first given wins a tie. None
    where none answered."""
    answers = [
        (answer, episode) for episode in episodes if (answer := answer_of(episode)) is not None
    ]
    if not answers:
        return None
    # in the order of being given, which max() keeps
    counts = Counter(answer for answer, _ in answers)
    winner = max(counts, key=lambda answer: counts[answer])
    return next(episode for answer, episode in answers if answer == winner)


def any_right(episodes: Iterable[EpisodeRecord]) -> bool:
    return any(episode.correct for episode in episodes)


def vote_right(episodes: Iterable[EpisodeRecord]) -> bool:
    chosen = majority(episodes)
    return chosen is not None and chosen.correct


def summarise(result: EvalResult, right: Callable[[list[EpisodeRecord]], bool]) -> dict[str, Any]:
    """`EvalResult.summary()` of all draws, in which the rates are of questions: `right` judges one
    question's draws.

    Lost episodes neither count nor vote; a question that lost all of its draws is left out.
    """
    by_question: dict[str, list[EpisodeRecord]] = defaultdict(list)
    for episode in result.finished:
        by_question[episode.question_id].append(episode)
    groups: Sequence[list[EpisodeRecord]] = list(by_question.values())

    def rate(part: str | None) -> dict[str, Any]:
        return Rate.of(right(group) for group in groups if part in (None, group[0].part)).as_dict()

    summary = result.summary()
    del summary["by_difficulty"], summary["mean_reward"]  # of episodes
    return {**summary, "overall": rate(None), SEEN: rate(SEEN), UNSEEN: rate(UNSEEN)}


def control(bench: Bench, folder: Run) -> Result:
    """Eight sampled episodes a question from the run's start. Its first draw is the run's own
    `before`, sampled."""
    config = bench.there.config
    model, tokenizer = load_model_and_tokenizer(config)
    play = model_play(model, tokenizer, config, bench.there.client, "sampled")
    prompts = [row for row in bench.inputs.evaluation for _ in range(DRAWS)]
    # a question's draws are told apart inside one batch: a batch holds whole questions
    batch = max(DRAWS, min(BATCH, batch_of(model, config)) // DRAWS * DRAWS)
    result = measure(
        bench.console, "best of 8", "sampled", play, prompts, bench.inputs.book, batch=batch
    )
    result.write(folder.evaluation("after", "sampled"))
    return Result(
        {
            "pass_at_8": {"sampled": summarise(result, any_right)},
            "vote_of_8": {"sampled": summarise(result, vote_right)},
        },
        result.wall_s,
        {"draws": DRAWS, "success_of_one_draw": result.rate().as_dict()},
    )
