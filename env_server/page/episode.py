"""One episode as it is shown: its actions with what they returned and what each earned."""

from collections.abc import Sequence
from dataclasses import dataclass

from env_server.audit.replay import Sql, play
from env_server.environment import SQLEnvironment
from env_server.episodes import PooledEpisode
from env_server.page.recordings import policy_name
from env_server.questions import QuestionBank
from shared.errors import SQLEnvError
from shared.models import RewardLedger, StandardName, StepResult
from shared.pages.markup import (
    ERROR,
    ActionMarkup,
    ObservationMarkup,
    action_markup,
    cut,
    observation_markup,
)
from shared.run_files import EpisodeLine, observation_digest

RAW_CHARS = 600  # shown of a model's own text


@dataclass(frozen=True)
class Step:
    """One action. `parts` are its reward's; `ledger` has the sums after it, if it was replayed."""

    action: ActionMarkup
    observation: ObservationMarkup
    reward: float | None
    parts: dict[str, float]
    ledger: RewardLedger | None
    raw_text: str = ""  # the model's own, if it differs from the action's canonical one


@dataclass(frozen=True)
class Shown:
    """An episode with its steps; `link` is the query of its page, `note` what is wrong with it."""

    title: str
    link: dict[str, str]
    question_id: str
    outcome: str
    steps: Sequence[Step]
    steps_left: int | None = None
    schema: str = ""
    note: str = ""
    is_live: bool = False


async def shown_line(
    bank: QuestionBank,
    sql: Sql,
    line: EpisodeLine,
    link: dict[str, str],
    step_budget: int,
    standard: StandardName,
) -> Shown:
    """Return a recorded episode, replayed on this server's data."""
    env = SQLEnvironment(bank, step_budget=step_budget, standard=standard)
    replies = await play(env, sql, line.actions, question_id=line.question_id)
    if isinstance(replies, SQLEnvError):
        note = f"Actions and rewards as recorded; a replay fails here: {replies.message}."
        replies = []
    else:
        digests = [observation_digest(one.observation) for one in replies]
        same = digests == line.observations
        note = "" if same else "The replay differs from the record: other data, rules or limits."
    return Shown(
        policy_name(line.phase, line.mode, line.step),
        link,
        line.question_id,
        line.outcome,
        _steps(line.actions, replies, line),
        note=note,
    )


async def shown_pooled(
    bank: QuestionBank, sql: Sql, episode: PooledEpisode, standard: StandardName, sees_all: bool
) -> Shown:
    """Return an episode that this server holds, so far; `sees_all` includes withheld rewards."""
    env = SQLEnvironment(bank, step_budget=episode.step_budget, standard=standard)
    actions = [*episode.actions]
    replies = await play(
        env,
        sql,
        actions,
        question_id=episode.question_id,
        answer_form=episode.answer_form,
        rewards="step" if sees_all else episode.rewards,
    )
    if isinstance(replies, SQLEnvError):
        raise replies
    last = replies[-1]
    return Shown(
        f"episode {episode.episode_id}" + (f" of {episode.owner}" if episode.owner else ""),
        {"id": episode.episode_id},
        episode.question_id,
        episode.outcome or "unfinished",
        _steps(actions, replies),
        last.observation.budget_remaining,
        last.observation.schema_info,
        is_live=not last.done,
    )


def _steps(
    actions: Sequence[str], replies: Sequence[StepResult], line: EpisodeLine | None = None
) -> list[Step]:
    steps = []
    for index, action in enumerate(actions):
        text, reward, parts, ledger = "", None, dict[str, float](), None
        if replies:
            reply = replies[index + 1]
            error, ledger = reply.observation.error, reply.info.ledger
            text = ERROR + error if error else reply.observation.result
            reward, parts = reply.reward, ledger.step if ledger else {}
        elif line is not None:
            reward, parts = line.rewards[index], line.parts[index] if line.parts else {}
        raw = line.texts[index] if line is not None and index < len(line.texts) else None
        shown = action_markup(action), observation_markup(action, text)
        steps.append(Step(*shown, reward, parts, ledger, cut(raw or "", RAW_CHARS)))
    return steps
