"""The API key that a client sends to its servers."""

import os

from shared.errors import Unauthorized
from shared.key_files import key_of, split_keys

API_KEY_VARIABLE = "SQLENV_API_KEY"


def bearer(api_key: str | None = None) -> dict[str, str]:
    """Return the header for `api_key`, or else for the environment's SQLENV_API_KEY, or the key in
    the file SQLENV_API_KEY_FILE; the first of several; empty without.

    `Unauthorized` for a file without a key, and for a key that a header can't hold.
    """
    value, file = map(os.environ.get, (API_KEY_VARIABLE, f"{API_KEY_VARIABLE}_FILE"))
    try:
        key = api_key or split_keys(key_of(API_KEY_VARIABLE, value, file))[0]
    except ValueError as error:
        raise Unauthorized(str(error)) from error
    if not all("!" <= char <= "~" for char in key):
        raise Unauthorized(
            f"the API key ({API_KEY_VARIABLE}, or api_key=) has a space or a character that is not"
            " ASCII; correct it"
        )
    return {"Authorization": f"Bearer {key}"} if key else {}
