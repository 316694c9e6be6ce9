"""The folder that the name of a model means."""

import os
from pathlib import Path

from shared.shipped import shipped_path
from trainer.config.presets import PRESETS


def model_path(name: str) -> Path:
    """Return the folder that a model's name means: that path, or one below MODELS_HOME with the
    model's name, the last part of it, or the name of its preset. Without such a folder it is `name`
    as a path, which may be a name on the hub."""
    path, home = shipped_path(name), os.environ.get("MODELS_HOME")
    if not home or looks_local(str(path)):
        return path
    preset = next((key for key, one in PRESETS.items() if one["model_name"] == name), name)
    folders = (Path(home, one) for one in (name, path.name, preset))
    return next((folder for folder in folders if folder.is_dir()), path)


def looks_local(name: str) -> bool:
    """Return whether a model's name is a path, so that a missing directory is never downloaded."""
    path = Path(name)
    return path.is_absolute() or name.startswith((".", "~")) or len(path.parts) > 2 or path.exists()
