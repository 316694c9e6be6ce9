import importlib.metadata
import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainer.model_families import CONFIGS
from tests.trainer.small_data import make_data
from trainer.runtime import doctor
from trainer.runtime.doctor import (
    Status,
    check_data,
    check_memory,
    check_model,
    check_packages,
    examine,
)


@pytest.mark.parametrize(
    ("package", "version", "status"),
    [
        ("torch", "2.13.0+cpu", Status.OK),
        ("torch", "2.13.0rc1", Status.OK),
        ("torch", "2.9.0rc1", Status.FAIL),
        ("torch", "2.7", Status.FAIL),
        ("trl", "1.17.0", Status.FAIL),
        ("uvloop", "0.1", Status.NOTE),
        ("trl", None, Status.FAIL),
    ],
)
def test_versions_are_compared_as_versions(monkeypatch, package, version, status):
    def installed(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", installed)
    found = {diagnosis.name: diagnosis for diagnosis in check_packages()}[package]
    assert found.status is status
    assert ("make install" in found.remedy) == (status is not Status.OK)


def test_data_is_counted_and_digested(tmp_path):
    diagnoses = list(check_data(make_data(tmp_path)))
    assert {one.status for one in diagnoses} == {Status.OK}
    assert "12 (4 easy, 4 medium, 4 hard) on 2 databases" in diagnoses[0].detail
    assert len(diagnoses[-1].detail) == 64


def test_missing_data_names_the_path_and_the_command(tmp_path):
    for missing in check_data(tmp_path / "nowhere"):
        assert missing.status is Status.FAIL
        assert str(tmp_path / "nowhere") in missing.detail
        assert missing.detail.count("python -m data build") == 1


def test_the_model_is_checked(base):
    (found,) = check_model(str(base))
    assert found.status is Status.OK
    assert "MiB" in found.detail
    (base / "tokenizer.json").unlink()
    for folder, problem in ((base, "no tokenizer.json"), (base / "a" / "b", "no such directory")):
        (failed,) = check_model(str(folder))
        assert failed.status is Status.FAIL
        assert problem in failed.detail


def test_the_memory_of_training_is_compared_with_the_machine(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["qwen2.5-coder-0.5b"]))
    preset, fits = check_memory(str(tmp_path))
    assert preset.detail.startswith("qwen2.5-coder-0.5b: nearest in size")
    assert "GiB to train: measurements take" in fits.detail
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=2**30))
    _, lacks = check_memory(str(tmp_path))
    assert lacks.status is Status.NOTE
    assert "this machine has 1.0 GiB" in lacks.detail
    assert "gradient_checkpointing=true" in lacks.remedy
    for kind in ("t5", "nonsense"):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
        _, unknown = check_memory(str(tmp_path))
        assert unknown.status is Status.NOTE
        assert "layers of another kind" in unknown.detail
    _, unknown = check_memory("Qwen/Qwen3-0.6B")
    assert unknown.detail == "unknown: Qwen/Qwen3-0.6B has no config.json here"


def test_one_broken_check_does_not_end_the_others(tmp_path, monkeypatch):
    def broken() -> Any:
        raise RuntimeError("driver mismatch")

    monkeypatch.setattr(doctor, "check_device", broken)
    found = {one.name: one for one in examine(make_data(tmp_path), str(tmp_path))}
    assert found["device"].status is Status.FAIL
    assert "driver mismatch" in found["device"].detail
    assert found["data digest"].status is Status.OK
