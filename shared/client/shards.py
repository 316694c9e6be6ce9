"""The shards of a gateway's episodes. A shard is a value of X-Affinity, which the gateway hashes to
choose a server; so it keeps no state, and a batch has the episodes of one server."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b

# The first is the value that a gateway hashes; with the second it states the number of values.
AFFINITY, SHARDS = "X-Affinity", "X-Affinity-Lanes"
SERVER = "X-Server"  # a gateway's name for the server that replied, or that is to reply
MAX_SHARDS = 64


@cache
def affinity(shard: int, detour: int) -> str:
    # hashed, as some gateways put similar values on the same server
    return blake2b(f"lane {shard} {detour}".encode(), digest_size=8).hexdigest()


class Shards:
    """The shards of one URL: `count` is 1 unless it is a gateway's."""

    def __init__(self) -> None:
        self.count, self._stated = 1, ""
        self.detours: Counter[int] = Counter()  # shard -> times that its server had another digest
        self._behind: dict[str, str] = {}  # affinity -> the server that replied last

    def of(self, episode_id: str) -> int:
        """Return an episode's shard: the same in every process."""
        if self.count == 1:
            return 0
        return int.from_bytes(blake2b(episode_id.encode(), digest_size=4).digest()) % self.count

    def route(self, shard: int) -> dict[str, str]:
        """Return the header by which a gateway sends a shard's episodes to one server."""
        return {AFFINITY: affinity(shard, self.detours[shard])}

    def server_of(self, episode_id: str) -> str:
        """Return the gateway's name for the server that replied last to an episode's shard."""
        return self._behind.get(self.route(self.of(episode_id))[AFFINITY], "")

    def note(self, sent: Mapping[str, str], received: Mapping[str, str]) -> None:
        """Note what the headers of a reply state, which `recount` uses."""
        self._stated = received.get(SHARDS, "")
        self._behind[sent.get(AFFINITY, "")] = received.get(SERVER, "")

    def recount(self) -> None:
        self.count = min(max(1, int(self._stated)), MAX_SHARDS) if self._stated.isdecimal() else 1
