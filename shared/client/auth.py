"""The key that a client shows to servers that ask for one."""

import os

from shared.errors import Unauthorized

API_KEY_VARIABLE = "SQLENV_API_KEY"


def bearer(api_key: str | None = None) -> dict[str, str]:
    """The header that carries `api_key`, or else the environment's SQLENV_API_KEY; no header where
    there is neither.

    `Unauthorized` for a key that no header can carry.
    """
    key = api_key or os.environ.get(API_KEY_VARIABLE, "")
    if not all("!" <= char <= "~" for char in key):
        raise Unauthorized(
            f"the key ({API_KEY_VARIABLE}, or api_key=) holds a space or a character that is not ASCII"
        )
    return {"Authorization": f"Bearer {key}"} if key else {}
