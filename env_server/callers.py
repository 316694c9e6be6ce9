"""Who calls: the owner of the episodes that a key begins, and what the key may do."""

from dataclasses import dataclass

from shared.errors import Forbidden
from shared.models import Rewards


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, by its key. `owner` is the key's name, never the key itself.

    An episode belongs to its owner: another key does not find it, except the operator's.
    """

    owner: str = ""  # "" for everybody on a server without keys
    is_operator: bool = False
    is_agent: bool = False  # has `agent_capacity` places, and sees rewards at the end only

    def rewards(self, wanted: Rewards | None) -> Rewards:
        """Return when an episode's replies show rewards; `Forbidden` if the key may not see them.

        An agent that saw the reward of every step could find the answer by it, without the data.
        """
        if not self.is_agent:
            return wanted or "step"
        if wanted == "step":
            raise Forbidden(
                f"rewards: the key {self.owner} sees rewards at the end of an episode; reset with"
                " 'end' or without the option, or send the trainer's key (SQLENV_API_KEY)"
            )
        return "end"


ANYONE = Caller()
