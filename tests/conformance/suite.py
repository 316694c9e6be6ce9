"""All checks of a server. Nothing here imports one, so that other implementations can be checked.

`hostile/` holds the hostile queries, as data.
"""

from collections.abc import Iterable

from tests.conformance.answers import answers
from tests.conformance.check import Check
from tests.conformance.corpus import HostileQuery
from tests.conformance.episodes import determinism, plays, replays, steps
from tests.conformance.errors import errors, sizes
from tests.conformance.fairness import fairness
from tests.conformance.headers import headers
from tests.conformance.jail import checks as jail_checks
from tests.conformance.leaks import gold, ownership, rewards
from tests.conformance.parsing import parsing

REGISTRIES = (
    plays, steps, replays, determinism, errors, gold, answers, headers, parsing, rewards, ownership,
    sizes, fairness,
)  # fmt: skip
GROUPS = (*(registry.group for registry in REGISTRIES), "hostile")


def all_checks(queries: Iterable[HostileQuery]) -> list[Check]:
    """Return every check, in the order of `GROUPS`."""
    checks = [check for registry in REGISTRIES for check in registry.checks]
    return checks + jail_checks(queries)
