"""The page of a finished, an interrupted and a damaged run, and of an evaluation.

None of their texts is markup. And the groups of rollouts that it shows.
"""

import json
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from typer.testing import CliRunner

from shared.run_files import sealed
from tests.trainer.conftest import record
from tests.trainer.played_run import HOSTILE, STEPS, record_run
from trainer.__main__ import app
from trainer.config.settings import REWARD_WEIGHTS
from trainer.errors import RunError
from trainer.report import groups as report_groups
from trainer.report import report_command as command
from trainer.report.groups import rollouts_of, share_right
from trainer.report.page import evaluation_page, run_page
from trainer.report.run_tables import mean_ledger, weighted, weights_of
from trainer.run.folder import Run, read_json, read_lines, write_json
from trainer.run.records import EpisodeRecord, append_records, read_records

SECTIONS = ("success", "curves", "ledger", "transcripts", "groups", "time", "counts", "settings")
without_charts = pytest.mark.usefixtures("blank_charts")
VOID = {"meta", "link", "br", "img", "input", "hr"}


def report(path: Path) -> str:
    return run_page(path)[0]


class Page(HTMLParser):
    """The elements of a page in order, its ids, its text by section, and whether its tags are
    balanced."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.by_section: dict[str, list[str]] = {}
        self._open: list[str] = []
        self._section = ""
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        if tag == "section":
            self._section = found.get("id") or "gaps"
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "section":
            self._section = ""

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("script", "style"):
            return
        self.texts.append(data)
        self.by_section.setdefault(self._section, []).append(data)

    def text(self, section: str | None = None) -> str:
        texts = self.texts if section is None else self.by_section.get(section, [])
        return " ".join(" ".join(texts).split())

    def count(self, tag: str, **attributes: str) -> int:
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return sum(
            name == tag
            and all(value in (found.get(key) or "").split() for key, value in wanted.items())
            for name, found in self.elements
        )


def scripts(page: Page) -> list[dict[str, str | None]]:
    return [found for tag, found in page.elements if tag == "script" and "type" not in found]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_run(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes that was stopped in training, without points of the eval curve."""
    return record_run(tmp_path_factory.mktemp("stopped"), until="train", processes=2, curve=False)


@pytest.fixture
def own(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def whole(finished: Path) -> str:
    return report(finished)


def test_every_section_is_filled(whole, finished):
    page = Page(whole)
    assert {found.get("id") for tag, found in page.elements if tag == "section"} == set(SECTIONS)
    drawn = [found for tag, found in page.elements if tag == "img"]
    assert len(drawn) == 11  # all charts but that of groups have something to draw
    assert "The run logged no value" in page.text("curves")
    assert page.count("table", class_="group") == STEPS * 4
    assert f"{STEPS * 4} groups are on this page" in page.text("groups")
    summary = read_json(Run(finished).summary)
    rate = summary["eval_success_after"]["greedy"]["unseen"]
    shown = f"{100 * rate['rate']:.1f} % [{100 * rate['ci95'][0]:.1f}, {100 * rate['ci95'][1]:.1f}]"
    assert shown in page.text("success")
    assert summary["digests"]["trained_model"] in page.text("settings")
    assert "seed 7 " in page.text("settings")
    assert "What is missing" not in page.text()


def test_counts_are_those_of_the_episodes(whole, finished):
    lines = list(read_lines(Run(finished).episodes))
    fields = ("env_errors", "parse_failures", "context_overflow", "too_large")
    totals = [sum(int(line.get(field) or 0) for line in lines) for field in fields]
    assert totals[0] > 0
    shown = " ".join(map(str, [len(lines), 0, *totals, 0]))
    assert f"all {shown}" in Page(whole).text("counts")


def test_the_ledger_has_the_means_of_what_the_server_paid(finished):
    episodes = list(read_records(Run(finished), lambda phase, step: phase == "random"))
    found = mean_ledger(episodes, REWARD_WEIGHTS)
    parts = ("exec_ok", "new_info", "repeat", "step_cost")
    assert found["n"] == len(episodes)
    for name, weight in REWARD_WEIGHTS.items():
        paid = [weight * (getattr(one, name) or 0.0) for one in episodes]
        assert found[name] == pytest.approx(fmean(paid))
    assert found["reward"] == pytest.approx(sum(found[name] for name in REWARD_WEIGHTS))
    assert sum(found[name] for name in parts) == pytest.approx(found["operational"])
    bare = [one.model_copy(update={"parts": []}) for one in episodes]
    without = mean_ledger(bare, REWARD_WEIGHTS)
    assert without == {name: mean for name, mean in found.items() if name not in parts}
    assert mean_ledger([], REWARD_WEIGHTS)["n"] == 0
    weights = weights_of({"reward_weights": [1.0, 0.5, 0.0]})
    other = mean_ledger(episodes, weights)
    assert other["reward"] == other["correctness"] + other["progress"] + 0
    assert other["progress"] == pytest.approx(found["progress"] / 0.15 * 0.5)
    assert [weighted(name, weight) for name, weight in weights.items()] == [
        "correctness", "0.5 × progress", "0 × operational"
    ]  # fmt: skip


def test_the_page_is_self_contained(whole):
    page = Page(whole)
    for tag, found in page.elements:
        assert tag not in ("iframe", "object", "embed", "base", "form")
        for name, value in found.items():
            assert not name.startswith("on")
            assert name != "style"
            if name in ("src", "href", "action", "srcset", "poster", "xlink:href"):
                assert str(value).startswith(("#", "data:"))
    # without the compressed items: their base64 may hold two slashes
    text = re.sub(r'class="chunks">.*?</script>|base64,[^"]*', "", whole)
    assert not re.search(
        r"(?:https?:)?//(?!www\.w3\.org/2000/svg)[a-z]",
        re.sub(r"http://127\.0\.0\.1:\d+", "", text),
    )
    assert len(scripts(page)) == page.count("style") == 1
    policy = next(str(found["content"]) for tag, found in page.elements if found.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_markup_in_questions_queries_and_answers_stays_text(whole):
    page = Page(whole)
    assert HOSTILE in page.text("transcripts")
    assert HOSTILE in page.text("groups")
    assert "<b>bold</b>" in page.text("transcripts")  # of a result's column
    images = [found for tag, found in page.elements if tag == "img"]
    assert all(found["src"].startswith("data:image/png;base64,") for found in images)
    assert len(scripts(page)) == 1


def test_everything_has_an_accessible_name(whole):
    page = Page(whole)
    ids = [found["id"] for _, found in page.elements if "id" in found]
    assert len(ids) == len(set(ids))
    for tag, found in page.elements:
        if tag in ("svg", "img"):
            assert found.get("alt") or found.get("aria-hidden")
        for reference in (found.get("aria-labelledby") or "").split():
            assert reference in ids
        if tag == "th":
            assert found.get("scope") in ("col", "row")
        if "href" in found and tag == "a":
            assert str(found["href"])[1:] in ids
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 or later == 4 for earlier, later in pairwise(levels))


@without_charts
def test_an_interrupted_run_says_what_is_missing(stopped):
    page = Page(report(stopped))
    missing = page.text("gaps")
    assert f"after step {STEPS} of {STEPS}" in missing
    assert f"python -m trainer train --resume {stopped}" in missing
    assert "no evaluation of the whole eval set: after" in missing
    assert "Not finished." in page.text()
    assert "waiting for other processes" in page.text("time")
    assert "before, greedy" in page.text("success")
    assert "after, greedy" not in page.text("success")


@without_charts
def test_a_run_without_training_steps_gives_a_page(tmp_path):
    began = record_run(tmp_path, until="before", steps=2)
    Run(began).episodes.unlink()
    page = Page(report(began))
    assert "random, before, after" in page.text("gaps")
    for section in SECTIONS:
        assert page.text(section)


@without_charts
def test_a_damaged_file_is_named(own):
    path = own / "summary.json"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(RunError, match=r"summary\.json is not JSON"):
        report(own)


@without_charts
def test_missing_questions_are_shown_by_their_ids(own, tmp_path, finished):
    config = read_json(own / "config.json")
    config["data_digest"] = "cc" * 32  # of other data
    write_json(own / "config.json", config)
    page = Page(report(own))
    assert "no longer the data that the run used" in page.text("gaps")
    assert "How many orders cost more than" in page.text("groups")
    config["config"]["questions_path"] = str(tmp_path / "questions" / "questions_train.json")
    write_json(own / "config.json", config)
    page = Page(report(own))
    assert "questions are shown by their ids" in page.text("gaps")
    assert "train-shop-0" in page.text("groups")


@without_charts
def test_a_run_of_too_many_episodes_shows_some_of_its_steps(own, monkeypatch):
    monkeypatch.setattr(report_groups, "MAX_EPISODES", 2 * 16)
    page = Page(report(own))
    assert page.count("table", class_="group") == 3 * 4
    assert f"12 groups are on this page, of 3 of {STEPS} training steps" in page.text("groups")


@without_charts
def test_lost_and_overflown_episodes_are_shown(own):
    run = Run(own)
    lines = list(read_lines(run.episodes))
    batch = [line for line in lines if line["phase"] == "train" and line["step"] == 1]
    rewards = ("reward", "correctness", "progress", "operational")
    batch[0] |= {"outcome": "infra_failed", **dict.fromkeys(rewards)}
    batch[1] |= {"context_overflow": True}
    batch[2] |= {"context_truncations": 2}
    for line in lines:
        del line["sha256"]
    rows = (json.dumps(sealed(line), ensure_ascii=False) for line in lines)
    run.episodes.write_text("".join(f"{row}\n" for row in rows))
    page = Page(report(own))
    assert "lost to infrastructure" in page.text("groups")
    assert "the context window was full" in page.text("groups")
    assert "only the actions before that are trained on" in page.text("groups")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere"], "no run at nowhere"),
        (["{run}", "--out", "."], "--out"),
        (["{cut}"], "is not JSON"),
    ],
)
def test_bad_input_is_one_line(own, tmp_path, monkeypatch, arguments, expected):
    for name in ("empty", "cut"):
        (tmp_path / name).mkdir()
    (tmp_path / "cut" / "config.json").write_text("{")
    monkeypatch.chdir(tmp_path / "empty")
    paths = {"run": own, "cut": tmp_path / "cut"}
    result = CliRunner().invoke(app, ["report", *(one.format(**paths) for one in arguments)])
    assert result.exit_code == 1
    assert expected in " ".join(result.output.split())


def evaluated(folder: Path, run: Run, samples: int = 1, **changes: Any) -> list[EpisodeRecord]:
    place = {"phase": "eval", "step": 0, "prompt_tokens": 9, "sampled_tokens": 5, **changes}
    episodes = [
        one.model_copy(update=place)
        for one in read_records(run, lambda phase, step: phase == "after")
        if one.mode == "greedy"
    ]
    append_records(Run(folder), episodes)
    settings = {"policy": "model", "split": "eval", "samples": samples, "standard": "strict"}
    config = read_json(run.config)["config"]
    write_json(folder / "config.json", {"evaluation": settings, "config": config})
    return episodes


@without_charts
def test_an_evaluation_has_a_page(finished, tmp_path):
    """One that was interrupted after its episodes."""
    folder, run = tmp_path / "evaluation", Run(finished)
    evaluated(folder, run)
    assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 0
    page = Page((folder / "report.html").read_text())
    rate = read_json(run.summary)["eval_success_after"]["greedy"]["overall"]
    assert f"{100 * rate['rate']:.1f} %" in page.text("success")
    assert f"All {rate['n']} questions" in page.text("questions")
    assert HOSTILE in page.text("questions")
    assert len(scripts(page)) == 1
    assert page.count("img") == 0
    assert "the evaluation is not finished" in page.text("gaps")
    assert "Votes of attempts" not in page.text("success")


@without_charts
def test_the_page_of_several_attempts_has_their_votes(finished, tmp_path):
    folder, run = tmp_path / "evaluation", Run(finished)
    for sample in (0, 1, 2):
        episodes = evaluated(folder, run, 2, sample=sample, answer="[[1]]")
    result = {"samples": 2, "success": {"overall": {"pass_at": {"1": 0, "2": 0}}}}
    write_json(folder / "evaluation.json", result)
    assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 0
    page = Page((folder / "report.html").read_text())
    assert f"{len(episodes)} (100 %)" in page.text("success")
    assert page.count("img") == 1
    assert "sample 3" not in page.text("questions")  # of an earlier call with --samples 3
    write_json(folder / "evaluation.json", {**result, "samples": 1})
    assert "the evaluation is not finished" in evaluation_page(folder)[0]


@without_charts
def test_without_a_path_the_newest_run_is_reported(own, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "RUNS", tmp_path)
    assert CliRunner().invoke(app, ["report"]).exit_code == 0
    assert (own / "report.html").exists()
    shutil.rmtree(own)
    assert "no run is in" in CliRunner().invoke(app, ["report"]).output


def test_the_rewards_of_a_group_have_the_runs_weights():
    rows = [record(outcome=one, correctness=float(one == "correct"), progress=0.5, operational=-0.1,
                   reward=None if one == "infra_failed" else 9.0)
            for one in ("correct", "wrong", "infra_failed")]  # fmt: skip
    weights = weights_of({"reward_weights": [1.0, 0.5, 0.0]})
    assert [one["reward"] for one in rollouts_of(rows, weights)] == [1.25, 0.25, None]


@pytest.mark.parametrize(
    ("outcomes", "share"),
    [
        (("correct", "wrong"), "some"),
        (("wrong", "wrong"), "none"),
        (("infra_failed", "correct"), "all"),  # a lost rollout is no wrong one
    ],
)
def test_a_group_is_told_by_its_right_rollouts(outcomes, share):
    lost = "infra_failed"
    rows = [record(outcome=one, reward=None if one == lost else 0.5) for one in outcomes]
    assert share_right(rows) == share
