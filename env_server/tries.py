"""What an agent's key has tried: its judged answers by question, and the ids of its ended episodes.

An agent learns at an ANSWER whether it was right, so each ANSWER that is judged is a try. The
counts are those of one server's process and end with it.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shared.errors import Conflict, Forbidden

# Ids per key, 3 MB. An older one can be started again, which is counted as any other episode.
MAX_ENDED = 10_000


@dataclass(slots=True)
class Count:
    """The tries of one question by one key."""

    tries: int = 0
    right: int = 0
    first_right: bool = False


class Ended(NamedTuple):
    steps: int
    digest: bytes  # of its options and actions
    attempt: int  # the number of its try among the question's; 0 if it was none


class AgentTries:
    """The tries of one agent's key, `total` in all, and its ended episodes."""

    def __init__(self, key: str) -> None:
        self.key, self.total = key, 0
        self.questions: dict[str, Count] = {}
        self._ended: OrderedDict[str, Ended] = OrderedDict()

    def add(self, question_id: str, right: bool) -> int:
        """Count a try; returns its number among the question's."""
        count = self.questions.setdefault(question_id, Count())
        if not count.tries:
            count.first_right = right
        count.tries += 1
        count.right += right
        self.total += 1
        return count.tries

    def check_limit(self, question_id: str, unfinished: int, limit: int) -> None:
        """Raise `Forbidden` if another episode could end in more tries than the limit."""
        tries = self.questions.get(question_id, Count()).tries
        if tries + unfinished >= limit:
            raise Forbidden(
                f"question {question_id}: the key {self.key} has made {tries:,} tries and has "
                f"{unfinished:,} unfinished episodes of it, and at most {limit:,} tries are "
                "allowed: choose another question, or raise SQLENV_AGENT_TRIES"
            )

    def end(self, episode_id: str, options: object, actions: Sequence[str], attempt: int) -> None:
        """Remember an ended episode that the server no longer holds."""
        self._ended[episode_id] = Ended(len(actions), digest_of(options, actions), attempt)
        self._ended.move_to_end(episode_id)
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def attempt_of(self, episode_id: str, options: object, actions: Sequence[str]) -> int:
        """Return the number of the try that a reset repeats, 0 if it rebuilds no judged answer.

        `Conflict` if an episode of this id has ended, unless the reset has its options and its
        whole history. The client then sees nothing new, and an unfinished episode may continue.
        """
        if (ended := self._ended.get(episode_id)) is None:
            return 0
        if ended.digest != digest_of(options, actions[: ended.steps]):
            raise has_ended(episode_id)
        return ended.attempt


def digest_of(options: object, actions: Sequence[str]) -> bytes:
    digest = hashlib.blake2b(repr(options).encode(), digest_size=16)
    for action in actions:
        text = action.encode(errors="surrogatepass")
        digest.update(b"%d:%b" % (len(text), text))
    return digest.digest()


def has_ended(episode_id: str) -> Conflict:
    """Return the error for an agent that starts an id again."""
    return Conflict(
        f"episode {episode_id} has ended, and an agent's key can't start an id again: choose "
        "another id; to rebuild the episode, send its options and all of its actions"
    )
