"""The state of an unfinished imitation in a file, from which another call continues."""

import hashlib
import io
import logging
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainer.run.folder import write_bytes

log = logging.getLogger(__name__)


@dataclass
class Progress:
    """What was done so far: batches, their tokens, seconds, and the running mean of the loss."""

    batches: int = 0
    tokens: int = 0
    seconds: float = 0.0
    mean_loss: float = 0.0


def fingerprint(
    model: nn.Module, batches: Sequence[Sequence[Sequence[int]]], *settings: Any
) -> str:
    """Return a hash of the initial weights, the batches of rows of token ids, and the settings."""
    digest = hashlib.sha256(repr((torch.__version__, *settings)).encode())
    for weights in model.state_dict().values():
        digest.update(weights.cpu().numpy().tobytes())
    for batch in batches:
        digest.update(f"{len(batch)}:".encode())
        for ids in batch:
            digest.update(array("i", ids).tobytes())
    return digest.hexdigest()


def save(path: Path, of: str, parts: Sequence[Any], progress: Progress) -> None:
    """Replace the file by the state of the imitation with the fingerprint `of`.

    `parts` are the model, the optimizers and the schedulers.
    """
    content = io.BytesIO()
    states = [part.state_dict() for part in parts]
    torch.save({"of": of, "progress": asdict(progress), "states": states}, content)
    write_bytes(path, content.getvalue())


def load(path: Path, of: str, parts: Sequence[Any]) -> Progress:
    """Restore the parts and return the progress; a new one unless the file has that imitation."""
    if not path.is_file():
        return Progress()
    stored = torch.load(path, map_location="cpu", weights_only=True)
    if stored["of"] != of:
        log.warning("%s is of other settings or data: training starts anew", path)
        return Progress()
    for part, state in zip(parts, stored["states"], strict=True):
        part.load_state_dict(state)
    return Progress(**stored["progress"])
