"""Keys that are given as a variable, or as a file that another variable names: a secret of Compose
or Kubernetes. Several are separated by commas or lines."""

from pathlib import Path


def split_keys(text: str) -> list[str]:
    """Return the keys of a value, at least one: a blank value is one empty key."""
    lines = [line for line in text.split("\n") if line.strip()] or [""]
    return [key.strip() for line in lines for key in line.split(",")]


def key_of(variable: str, value: str | None, file: Path | str | None) -> str:
    """Return the value of a variable, or the text of the file that VARIABLE_FILE names; "" without
    either. `ValueError` has the remedy."""
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
