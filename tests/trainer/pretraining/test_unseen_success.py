"""The success in a model card, on a server process."""

import io

from rich.console import Console

from trainer.pretraining import unseen_success as module
from trainer.pretraining.unseen_success import TRIES, unseen_success


def test_unseen_questions_are_played_greedily_and_sampled(small, monkeypatch):
    played, run_evaluation = [], module.run_evaluation

    def recorded(settings, console):
        played.append((settings.mode, settings.samples, settings.part))
        return run_evaluation(settings, console)

    monkeypatch.setattr(module, "run_evaluation", recorded)
    console = Console(file=io.StringIO(), width=200)
    found = unseen_success(small.override(step_budget=1, max_new_tokens=4), console, eval_limit=6)
    assert played == [("greedy", 1, "unseen"), ("sampled", TRIES, "unseen")]
    assert 0 < found["n"] == found["greedy"]["n"] == found["sampled"]["n"] < 6
    assert found["greedy"]["rate"] == found["pass_at_8"] == 0
