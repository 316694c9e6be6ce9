"""The benchmark of a rollout: its time line, its ratios, and the seconds that runs report."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from benchmarks.rollout import measure
from benchmarks.rollout.figure import draw, live_curve, tracks
from benchmarks.rollout.measure import (
    ENDING,
    ENVIRONMENT,
    GENERATION,
    PARSING,
    READING,
    Recorder,
    Rollout,
    Span,
)
from shared.server_process import running_server
from trainer.config import GRPOConfig
from trainer.rollout.generators.base import Sample
from trainer.rollout.loop import play_episodes
from trainer.rollout.row import RolloutRow, RolloutStats
from trainer.runtime.models import load_model_and_tokenizer

WAITS = [
    Span(ENVIRONMENT, 1.0, 2.0, 3),
    Span(GENERATION, 2.5, 6.0, 3),
    Span(ENVIRONMENT, 6.25, 7.0, 3),
    Span(GENERATION, 7.0, 8.0, 1),
    Span(ENVIRONMENT, 8.0, 9.0, 1),
]
ROLLOUT = Rollout([], Recorder(0.0, WAITS), whole_s=10.0, cpu_s=6.0)


def test_the_time_between_waits_is_named_by_its_neighbours() -> None:
    spans = ROLLOUT.spans()
    assert [(one.phase, one.start_s, one.live) for one in spans if one not in WAITS] == [
        (READING, 0.0, 0),
        (READING, 2.0, 3),
        (PARSING, 6.0, 3),
        (ENDING, 9.0, 1),
    ]
    assert all(one.end_s == two.start_s for one, two in pairwise(spans))
    assert ROLLOUT.seconds() == {
        GENERATION: 4.5, ENVIRONMENT: 2.75, PARSING: 0.25, READING: 1.5, ENDING: 1.0
    }  # fmt: skip


def test_the_ratios_of_a_round() -> None:
    later = [Span(one.phase, one.start_s, one.end_s + 0.0625, one.live) for one in WAITS]
    slow = Rollout([], Recorder(0.0, later), whole_s=11.0, cpu_s=7.0)
    found = measure.figures(ROLLOUT, slow, pure_s=5.0, pure_cpu_s=5.0)
    assert found["turns"] == 0
    assert found["environment_share"] == 0.275
    assert found["else_share"] == 0.275
    assert found["over_pure"] == pytest.approx((7.25 + 8.0625) / 2 / 5 - 1)
    assert found["cpu_over_pure"] == pytest.approx(0.3)
    assert found["added_ms_per_turn"] == 62.5


def test_the_figure_shows_every_span_and_the_live_episodes(tmp_path: Path) -> None:
    spans = ROLLOUT.spans()
    assert live_curve(spans) == ([2.5, 7.0, 10.0], [3, 1, 0])
    assert [len(bars) for bars in tracks(spans).values()] == [2, 3, 4]
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    draw({"a": spans}, one)
    draw({"a": spans, "b": spans}, two)
    assert imread(two).shape[0] == 2 * imread(one).shape[0]


class Other:
    """A generator that samples one id, whatever was sampled before."""

    def start(self, streams: Any) -> None: ...

    def restart(self, row: int) -> None: ...

    def room(self, row: int) -> int:
        return 100

    def sample(self, appended: Any) -> dict[int, Sample]:
        return {row: Sample([7], [0.0]) for row in appended}


def test_a_generation_of_other_turns_is_no_comparison() -> None:
    recorder = Recorder(streams=[(1,)], turns=[([], {0: [1, 2]}, Other().sample([0]))])
    measure.generate_again(Other(), recorder)
    recorder.turns.append(([], {0: [3]}, {0: Sample([8], [0.0])}))
    with pytest.raises(RuntimeError, match="sampled differently"):
        measure.generate_again(Other(), recorder)


@pytest.mark.slow
def test_rollouts_on_a_server_near_and_far(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[RolloutStats] = []

    def play(*args: Any, **options: Any) -> list[RolloutRow]:
        reported.append(RolloutStats())
        return play_episodes(*args, **options, stats=reported[-1])

    monkeypatch.setattr(measure, "play_episodes", play)
    small = {"num_generations": 2, "max_new_tokens": 8, "step_budget": 2}
    config = GRPOConfig.preset("offline", data_dir=tiny_data, **small)
    model, tokenizer = load_model_and_tokenizer(config)
    with running_server(tiny_data) as server:
        urls = server.url, server.url
        ((plain, slow, found),) = measure.measure(urls, model.eval(), tokenizer, config, 4, 0.2, 1)
    assert len({row.question_id for row in plain.rows}) == 2
    assert [one.episodes for one in reported] == [2, 2, 4, 4], "with the warm-up, of one group"
    for rollout, stats in zip((plain, slow), reported[2:], strict=True):
        waits, seconds = rollout.recorder.waits, rollout.seconds()
        assert [one.live for one in waits[:2]] == [4, 4]
        assert all(1 <= one.live <= 4 for one in waits)
        calls = len(waits) // 2  # two rounds of turns, of which a part may end before the others
        assert 2 <= calls <= 8
        assert [one.phase for one in waits] == [ENVIRONMENT, *(GENERATION, ENVIRONMENT) * calls]
        assert sum(seconds.values()) == pytest.approx(rollout.whole_s)
        # measured outside the recorder, by a run's clocks: a busy machine adds to them
        assert 0 < seconds[GENERATION] <= stats.generate_s
        assert 0 < seconds[ENVIRONMENT] <= stats.env_wait_s
        assert stats.generate_s + stats.env_wait_s <= stats.rollout_s <= rollout.whole_s
    assert found["turns"] == len(slow.step_waits()) >= 2
    assert min(slow.step_waits()) > 0.19
    assert slow.seconds()[ENVIRONMENT] > 0.57, "two turns and the reset"
