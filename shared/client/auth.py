"""The API key that a client sends to its servers."""

import os

from shared.errors import Unauthorized

API_KEY_VARIABLE = "SQLENV_API_KEY"


def bearer(api_key: str | None = None) -> dict[str, str]:
    """Return the header for `api_key`, or else for the environment's SQLENV_API_KEY; empty without.

    `Unauthorized` for a key that a header can't hold.
    """
    key = api_key or os.environ.get(API_KEY_VARIABLE, "")
    if not all("!" <= char <= "~" for char in key):
        raise Unauthorized(
            f"the API key ({API_KEY_VARIABLE}, or api_key=) has a space or a character that is not"
            " ASCII; correct it"
        )
    return {"Authorization": f"Bearer {key}"} if key else {}
