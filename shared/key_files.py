"""Keys that are given as a variable, or as a file that another variable names: a secret of Compose
or Kubernetes."""

from pathlib import Path


def key_of(variable: str, value: str | None, file: Path | str | None) -> str:
    """Return the value of a variable, or the text of the file that VARIABLE_FILE names; "" without
    either.

    `ValueError`, with the remedy, if both are set, or if the file can't be read or is empty.
    """
    if not file:
        return value or ""
    if value:
        raise ValueError(f"{variable} and {variable}_FILE are both set: unset one of them")
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        reason = f"can't read {file}: {error.strerror}; name a file that this user may read"
        raise ValueError(f"{variable}_FILE: {reason}") from error
    if not text:
        raise ValueError(f"{variable}_FILE: {file} is empty: write the key into it")
    return text
