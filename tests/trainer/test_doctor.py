import importlib.metadata
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.small_data import make_data
from trainer import doctor
from trainer.doctor import (
    Status,
    can_run,
    check_data,
    check_model,
    check_packages,
    check_server,
    examine,
)


def statuses(findings: Any) -> dict[str, Status]:
    return {finding.name: finding.status for finding in findings}


def test_this_checkout_has_what_it_needs() -> None:
    findings = list(check_packages())
    assert {"torch", "trl", "transformers", "fastapi", "apsw"} <= statuses(findings).keys()
    assert not [finding for finding in findings if finding.status is Status.FAIL]


def test_a_missing_package_and_an_old_one_come_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "trl":
            raise importlib.metadata.PackageNotFoundError(name)
        return "0.9" if name == "fastapi" else real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = {finding.name: finding for finding in check_packages()}
    assert found["trl"].status is Status.FAIL
    assert "not installed, needs >=" in found["trl"].found
    assert "make install" in found["trl"].remedy
    assert "0.9, needs >=" in found["fastapi"].found
    assert found["torch"].status is Status.OK


def test_versions_are_compared_as_numbers() -> None:
    assert doctor._satisfies("2.13.0+cpu", ">=2.8")
    assert doctor._satisfies("0.10", ">=0.9")
    assert not doctor._satisfies("2.8.0rc1", ">=2.8.1")
    assert doctor._satisfies("1.0", "")


def test_data_is_counted_and_digested(tmp_path: Path) -> None:
    findings = list(check_data(make_data(tmp_path)))
    assert can_run(findings)
    assert "12 (4 easy, 4 medium, 4 hard) on 2 databases" in findings[0].found
    assert len(findings[-1].found) == 64


def test_missing_data_names_the_path_and_the_command(tmp_path: Path) -> None:
    findings = list(check_data(tmp_path / "nowhere"))
    assert not can_run(findings)
    assert str(tmp_path / "nowhere") in findings[0].found
    assert "python -m data build" in findings[0].remedy


def test_a_missing_database_is_named(tmp_path: Path) -> None:
    make_data(tmp_path)
    (tmp_path / "databases" / "farm" / "farm.sqlite").unlink()
    findings = {finding.name: finding for finding in check_data(tmp_path)}
    assert findings["train questions"].status is Status.OK  # farm is not trained on
    assert findings["eval questions"].status is Status.FAIL
    assert "farm.sqlite" in findings["eval questions"].found


def test_an_unreachable_server_is_named() -> None:
    (finding,) = check_server(["http://127.0.0.1:9"])
    assert finding.status is Status.FAIL
    assert "http://127.0.0.1:9" in finding.found
    assert "python -m env_server" in finding.remedy
    (finding,) = check_server(["no url"])
    assert finding.status is Status.FAIL


def test_the_model_is_looked_for(tmp_path: Path, model: Any) -> None:
    (missing,) = check_model(str(tmp_path / "a" / "b"))
    assert missing.status is Status.FAIL
    assert "python -m trainer pretrain" in missing.remedy
    model.save_pretrained(tmp_path / "base")
    (found,) = check_model(str(tmp_path / "base"))
    assert found.status is Status.OK
    assert "MiB" in found.found


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("Qwen/Qwen3-0.6B", Status.NOTE),
        ("gpt2", Status.NOTE),
        ("../missing", Status.FAIL),
        ("data/models/missing", Status.FAIL),
    ],
)
def test_a_hub_name_is_what_training_takes_for_one(
    name: str, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (finding,) = check_model(name)
    assert finding.status is status


def test_spider_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPIDER_DIR", raising=False)
    (finding,) = doctor.check_spider()
    assert finding.status is Status.NOTE
    assert "python -m data fetch spider" in finding.remedy
    monkeypatch.setenv("SPIDER_DIR", str(tmp_path))
    assert next(doctor.check_spider()).status is Status.OK


def test_one_broken_check_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise RuntimeError("driver mismatch")

    monkeypatch.setattr(doctor, "check_device", broken)
    findings = examine(make_data(tmp_path), str(tmp_path), [])
    assert "driver mismatch" in {finding.name: finding.found for finding in findings}["device"]
    assert "data digest" in statuses(findings)
