"""Data without training questions, as an import of a development split alone: it can be measured
and not trained on.
"""

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from data.golds.execute import KEEP_EMPTY
from data.sources.spider import import_spider
from env_server.audit.verify import verify_run
from shared.errors import QuestionLoadError
from tests.data.sources.tiny_spider import make_spider
from trainer.__main__ import app
from trainer.config import GRPOConfig
from trainer.evaluation.inputs import JobOptions, load_inputs


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """Return the import of a development split, with one gold of nothing but NULL."""
    source = make_spider(tmp_path / "spider")
    (source / "train_spider.json").unlink()
    import_spider(source, tmp_path / "dev", keep=KEEP_EMPTY)
    return tmp_path / "dev"


def test_it_is_measured_end_to_end(dev: Path, tmp_path: Path) -> None:
    out = tmp_path / "oracle"
    arguments = ["evaluate", "--policy", "oracle", "--data", str(dev), "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    result = json.loads((out / "evaluation.json").read_text())
    success = result["success"]
    assert success["overall"]["success"]["rate"] == 1.0
    assert success["unseen"]["episodes"] == result["episodes"] == 3  # all databases are unseen
    assert asyncio.run(verify_run(out, data_dir=dev)).problems == []


def test_training_on_it_is_refused_with_a_remedy(dev: Path, small: GRPOConfig) -> None:
    config = small.override(data_dir=dev)
    with pytest.raises(QuestionLoadError, match=r"has no training questions.*trainer evaluate"):
        load_inputs(config, JobOptions())
    assert load_inputs(config, JobOptions(), training=False, with_model=False).train == []


def test_data_without_eval_questions_is_refused_with_a_remedy(
    tmp_path: Path, small: GRPOConfig
) -> None:
    source = make_spider(tmp_path / "spider")
    (source / "dev.json").unlink()
    import_spider(source, tmp_path / "train")
    message = r"has no eval questions \(questions_eval\.json\).*--eval-questions"
    with pytest.raises(QuestionLoadError, match=message):
        load_inputs(small.override(data_dir=tmp_path / "train"), JobOptions())
