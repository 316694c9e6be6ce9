"""The state of an unfinished imitation in a file, from which another call continues."""

import hashlib
import io
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainer.run.folder import write_bytes
from trainer.run.summary import model_digest


@dataclass
class Progress:
    """What was done so far: batches, their tokens, seconds, and the running mean of the loss."""

    batches: int = 0
    tokens: int = 0
    seconds: float = 0.0
    mean_loss: float = 0.0


TokenRow = tuple[list[int], list[int]]  # token ids, and 1 where a token is learned, else 0


def fingerprint(model: nn.Module, plan: Sequence[Sequence[TokenRow]], settings: Any) -> str:
    """Return a hash of the initial weights, the batches of rows and the settings."""
    digest = hashlib.sha256(repr((torch.__version__, settings)).encode())
    digest.update(model_digest(model).encode())
    for rows in plan:
        digest.update(f"{[len(ids) for ids, _ in rows]}".encode())
        for ids, learn in rows:
            digest.update(array("i", ids).tobytes())
            digest.update(bytes(learn))
    return digest.hexdigest()


def save(path: Path, of: str, parts: Sequence[Any], progress: Progress) -> None:
    """Replace the file by the state of the imitation with the fingerprint `of`.

    `parts` are the model, the optimizers and the schedulers.
    """
    content = io.BytesIO()
    states = [part.state_dict() for part in parts]
    torch.save({"of": of, "progress": asdict(progress), "states": states}, content)
    write_bytes(path, content.getvalue())


def load(path: Path, of: str, parts: Sequence[Any]) -> Progress | None:
    """Restore the parts and return the progress; None if the file is of another imitation."""
    if not path.is_file():
        return Progress()
    stored = torch.load(path, map_location="cpu", weights_only=True)
    if stored["of"] != of:
        return None
    for part, state in zip(parts, stored["states"], strict=True):
        part.load_state_dict(state)
    return Progress(**stored["progress"])
