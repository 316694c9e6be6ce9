"""Fixtures: a random tiny Qwen3, a tokenizer trained here, a fake server, records of episodes."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.image import imsave
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from shared.actions import SQLAction, parse_action, render_action
from shared.client.limits import ClientStats
from shared.errors import SQLEnvError
from shared.models import Outcome, ResetResult, RewardLedger, SQLObservation, StepInfo, StepResult
from tests.trainer.small_data import make_data
from trainer.config.settings import GRPOConfig
from trainer.rollout.dataset import prompt_of
from trainer.run.records import EpisodeRecord

pytest.register_assert_rewrite("tests.trainer.small_job")
# parallel test processes share the cores
torch.set_num_threads(1)

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = [
    "DESCRIBE: orders",
    "SAMPLE: customers",
    "QUERY: SELECT COUNT(*) FROM orders WHERE total > 100",
    "ANSWER: 42",
    "Question: How many orders are there?\nTables: orders, customers\nSteps left: 10",
    "orders: 12 rows\norder_id INTEGER primary key\ntotal REAL\nname | total\nAnn | 12.5\n"
    "Error: no such column",
]


def make_tokenizer(
    chat_template: str = CHATML,
    *,
    split: str | None = None,
    texts: Sequence[str] = (),
    vocab_size: int = 400,
    thinking: bool = True,
) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE with ChatML's control tokens as special tokens, and Qwen3's `thinking`
    tokens as added ones. `split` is a regular expression of its words, `texts` are further ones to
    train on."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    if split is not None:
        bpe.normalizer = normalizers.NFC()
        words = pre_tokenizers.Split(Regex(split), "isolated")
        bpe.pre_tokenizer = pre_tokenizers.Sequence([words, bpe.pre_tokenizer])
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([*texts, *CORPUS * 20], trainer)
    if thinking:
        bpe.add_tokens(["<think>", "</think>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=chat_template,
    )


def random_model(kind: type[Any], tokenizer: PreTrainedTokenizerFast, window: int = 1024) -> Any:
    torch.manual_seed(0)
    config = kind.config_class(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=128,
        max_position_embeddings=window,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.1,  # wide enough that the distributions are far from uniform
    )
    built = kind(config).eval()
    # further ids that end a turn, as Qwen3 has, so that turns of a random model have uneven lengths
    built.generation_config.eos_token_id = [tokenizer.eos_token_id, *range(100, 140)]
    return built


@pytest.fixture
def blank_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the pictures of runs in this process by one pixel.

    Drawing takes over half of a small job's time.
    """

    def save(figure: Figure, file: Any, *, format: str) -> None:
        imsave(file, [[[0.0, 0.0, 0.0]]], format=format)

    monkeypatch.setattr(Figure, "savefig", save)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


@pytest.fixture
def model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    return random_model(Qwen3ForCausalLM, tokenizer)


@pytest.fixture
def config() -> GRPOConfig:
    return GRPOConfig(
        device="cpu",
        dtype="float32",
        system_prompt="short",
        max_new_tokens=12,
        max_context_tokens=768,
        step_budget=6,
        num_generations=4,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
    )


def short_training(config: GRPOConfig, tmp_path: Path, **changes: Any) -> GRPOConfig:
    short = {"max_steps": 1, "logging_steps": 1, "step_budget": 4, "max_new_tokens": 6}
    return config.override(**{**short, "output_dir": tmp_path, **changes})


def prompts(config: GRPOConfig, count: int = 4) -> list[dict[str, Any]]:
    return [
        {"prompt": prompt_of(f"q{number}", "How many orders?", config)} for number in range(count)
    ]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return make_data(tmp_path / "data")


@pytest.fixture
def base(tmp_path: Path, model: Any, tokenizer: Any) -> Path:
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def small(config: GRPOConfig, data_dir: Path, base: Path) -> GRPOConfig:
    return config.override(
        data_dir=data_dir,
        model_name=str(base),
        max_steps=3,
        logging_steps=1,
        learning_rate=1e-3,
        step_budget=3,
        max_new_tokens=6,
    )


def observation(
    count: int, budget: int, *, result: str = "", error: str | None = None, **changes: Any
) -> SQLObservation:
    values = {
        "question": "How many orders are there?",
        "schema_info": "Tables: orders, customers",
        "result": result,
        "error": error,
        "step_count": count,
        "budget_remaining": budget,
        "action_history": [],
        "done": False,
    }
    return SQLObservation(**{**values, **changes})


class FakeClient:
    """A fake server: it answers every action with text whose length depends on the action,
    `ANSWER: 42` is right.

    An episode whose question is in `failing` is lost at the step given there (0 is the reset).
    `after`: steps after which a question's episodes end, so that batches have uneven lengths.
    """

    def __init__(
        self, failing: Mapping[str, int] | None = None, after: Mapping[str, int] | None = None
    ) -> None:
        self.failing, self.after = failing or {}, after or {}
        self.episodes: dict[str, tuple[str, int, list[str]]] = {}
        self.closed: list[str] = []
        self.stats = ClientStats()
        self.error: type[SQLEnvError] | None = None

    def reset_many(self, requests: Iterable[Mapping[str, Any]]) -> list[ResetResult | SQLEnvError]:
        replies: list[ResetResult | SQLEnvError] = []
        for request in requests:
            question_id, budget = request["question_id"], request["step_budget"]
            if self.failing.get(question_id) == 0:
                replies.append(self._failure())
                continue
            episode_id = str(uuid.uuid4())
            self.episodes[episode_id] = (question_id, budget, [])
            info = self._info(question_id, 0.0, 0, None)
            replies.append(
                ResetResult(
                    observation=observation(0, budget),
                    reward=None,
                    done=False,
                    info=info,
                    episode_id=episode_id,
                )
            )
        return replies

    def step_many(
        self, steps: Iterable[tuple[str, SQLAction | str]]
    ) -> list[StepResult | SQLEnvError]:
        return [self._step(episode_id, action) for episode_id, action in steps]

    def start_step(self, episode_id: str, action: SQLAction | str) -> Future[StepResult]:
        future = Future[StepResult]()
        [reply] = self.step_many([(episode_id, action)])
        if isinstance(reply, SQLEnvError):
            future.set_exception(reply)
        else:
            future.set_result(reply)
        return future

    def close_episode(self, episode_id: str) -> None:
        self.closed.append(episode_id)

    def _failure(self) -> SQLEnvError:
        from shared.errors import ServerUnreachable

        return (self.error or ServerUnreachable)("http://127.0.0.1:1 does not answer")

    def _step(self, episode_id: str, action: SQLAction | str) -> StepResult | SQLEnvError:
        question_id, budget, history = self.episodes[episode_id]
        action = parse_action(action) if isinstance(action, str) else action
        if self.failing.get(question_id) == len(history) + 1:
            return self._failure()
        history.append(render_action(action))
        count = len(history)
        answered = action.action_type == "ANSWER"
        done = answered or count >= min(budget, self.after.get(question_id, budget))
        outcome = None
        if done:
            right = answered and action.argument == "42"
            outcome = Outcome.CORRECT if right else Outcome.WRONG if answered else Outcome.BUDGET
        bad = action.action_type == "QUERY" and not action.argument.upper().startswith("SELECT")
        result = (
            ""
            if answered or bad
            else "total | name\n" + "\n".join(f"{n} | Ann" for n in range(len(action.argument) % 7))
        )
        return StepResult(
            observation=observation(
                count,
                budget - count,
                result=result,
                error="near there: syntax error" if bad else None,
                action_history=list(history),
                done=done,
            ),
            reward=0.0,
            done=done,
            info=self._info(
                question_id,
                1.0 if outcome is Outcome.CORRECT else 0.0,
                sum(map(len, history)),  # no two episodes of a group earn the same
                outcome,
                "sql_error" if bad else None,
            ),
        )

    @staticmethod
    def _info(
        question_id: str,
        correctness: float,
        letters: int,
        outcome: Outcome | None,
        error_code: str | None = None,
    ) -> StepInfo:
        operational, potential = max(-0.25, -0.0005 * letters), 0.5 if letters else 0.0
        total = operational + 0.15 * potential + correctness
        ledger = RewardLedger(
            step={},
            operational=operational,
            progress=0.15 * potential,
            correctness=correctness,
            potential=potential,
            total=total,
        )
        return StepInfo(
            question_id=question_id,
            reward_version="fake",
            ledger=ledger,
            outcome=outcome,
            error_code=error_code,
        )


class InterruptedClient(FakeClient):
    """Call `event` in the given reset_many call (1 is the first)."""

    def __init__(self, at: int, event: Callable[[], object]) -> None:
        super().__init__()
        self.at, self.event, self.calls = at, event, 0

    def reset_many(self, requests: Iterable[Mapping[str, Any]]) -> list[ResetResult | SQLEnvError]:
        self.calls += 1
        if self.calls == self.at:
            self.event()
        return super().reset_many(requests)


def record(**changes: Any) -> EpisodeRecord:
    """Return a record with the fields `changes`, of which `turns` are the texts and what its agent
    read. Steps and rewards follow from them by default."""
    turns, actions = changes.pop("turns", ()), changes.get("actions", ())
    written = [text for text, _ in turns] or actions
    outcome = changes.get("outcome", "correct")
    lost = outcome == "infra_failed"
    correctness = None if lost else float(outcome == "correct")
    fields = {
        "question_id": "q",
        "database": "shop",
        "difficulty": "easy",
        "part": "seen",
        "outcome": outcome,
        "phase": "eval",
        "mode": "greedy",
        "step": 0,
        "steps": max(len(written), len(changes.get("rewards", ()))),
        "correctness": correctness,
        "progress": None if lost else 0.0,
        "operational": None if lost else 0.0,
        "reward": correctness,
        "parse_failures": 0,
        "env_errors": 0,
        "context_overflow": False,
        "context_truncations": 0,
        "inferred_actions": 0,
        "too_large": False,
        "texts": [
            None if text == action else text for text, action in zip_longest(written, actions)
        ],
        "seen": ("Question: ?", *(observation for _, observation in turns)) if turns else (),
        **{name: [] for name in ("actions", "rewards", "observations", "parts")},
    }
    return EpisodeRecord.model_validate({**fields, **changes}, strict=False)


NAMES = ("a", "a", "b", "c", "c", "c", "d", "e")
AFTER = {"a": 1, "b": 2, "c": 6, "d": 3}


def logprobs_of(model: Any, ids: Sequence[int], temperature: float = 1.0) -> torch.Tensor:
    """Return the log-probability of each id but the first, by one pass without a cache."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1].float() / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]


def check_recorded(model: Any, row: Any) -> None:
    """Check that a row's sampled ids have the log-probabilities of one pass over it."""
    own = logprobs_of(model, row.ids)[len(row.prompt_ids) - 1 :].tolist()
    sampled = [n for n, mask in enumerate(row.env_mask) if mask]
    assert sampled
    found = [own[n] for n in sampled]
    assert found == pytest.approx([row.logprobs[n] for n in sampled], rel=0, abs=1e-4)


def prompts_for(config: GRPOConfig, *question_ids: str) -> list[Any]:
    return [
        prompt_of(question_id, "How many orders are there?", config) for question_id in question_ids
    ]
