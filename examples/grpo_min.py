"""GRPO in one file, without TRL: python examples/grpo_min.py [--steps 32] [--model DIR]

A model plays groups of episodes about the same question, and learns from how much better than its
group each was. By default the toy practises 16 questions, in 5 minutes on two CPU cores. Writes
grpo_min.png. `python -m trainer train` does the same for large data and models.
"""

import argparse
import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sqlenv import ActionType, Outcome, SQLEnvClient, StepResult, create_app, in_process

SYSTEM = "Answer from the database: DESCRIBE, SAMPLE, QUERY, ANSWER."  # as the toy was pretrained
TURN_TOKENS, CONTEXT_TOKENS, STEPS = 64, 1024, 8  # limits of a turn and of an episode
ROWS_PER_PASS, CLIP_NORM = 8, 1.0


@dataclass
class Episode:
    """One episode as tokens. `mask` is 1 where the model sampled: only there it learns."""

    id: str
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    reward: float = 0.0
    correct: bool = False
    done: bool = False

    def add(self, ids: list[int], sampled: bool) -> None:
        self.ids += ids
        self.mask += [int(sampled)] * len(ids)


def shown(reply: StepResult) -> str:
    """Return what the model reads of a reply: never the reward, which would tell the answer."""
    seen = reply.observation
    if seen.step_count == 0:
        text = f"Question: {seen.question}\n{seen.schema_info}"
    else:
        text = f"Error: {seen.error}" if seen.error else seen.result
    return f"{text}\nSteps left: {seen.budget_remaining}"


def action_of(text: str) -> str:
    """Return a turn's action. Other text is sent as a QUERY, which fails and costs a step."""
    kind, _, argument = text.partition(":")
    return text if kind in [*ActionType] and argument.strip() else f"QUERY: {text or '-'}"


class Player:
    """A model that plays through the client."""

    def __init__(self, folder: str, temperature: float) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.temperature = temperature
        self.end = self.tokenizer.convert_tokens_to_ids("<|im_end|>")

    def chat(self, *messages: tuple[str, str]) -> list[int]:
        """Return messages in the model's chat format (ChatML), and the start of its turn."""
        texts = [f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages]
        text = "".join([*texts, "<|im_start|>assistant\n"])
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    @torch.no_grad()
    def sample(self, rows: list[list[int]]) -> list[list[int]]:
        """Return one more turn of each row, with the end token if it came to one."""
        width = max(map(len, rows))
        ids = torch.tensor([[self.end] * (width - len(row)) + row for row in rows])
        seen = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        turns = self.model.generate(
            ids, attention_mask=seen, max_new_tokens=TURN_TOKENS, do_sample=True, top_k=0,
            top_p=1.0, temperature=self.temperature, eos_token_id=self.end, pad_token_id=self.end,
        )[:, width:].tolist()  # fmt: skip
        return [one[: one.index(self.end) + 1] if self.end in one else one for one in turns]

    async def play(self, client: SQLEnvClient, seeds: list[int]) -> list[Episode]:
        """Play one episode per seed, all at once. Equal seeds draw the same question."""
        asked = {"split": "train", "step_budget": STEPS, "explain": []}  # as the toy was pretrained
        resets = [client.reset(seed=seed, **asked) for seed in seeds]
        replies = await asyncio.gather(*resets)
        episodes = [Episode(reply.episode_id) for reply in replies]
        for one, reply in zip(episodes, replies, strict=True):
            one.add(self.chat(("system", SYSTEM), ("user", shown(reply))), sampled=False)
        while playing := [one for one in episodes if not one.done]:
            turns = self.sample([one.ids for one in playing])
            texts = [self.tokenizer.decode(turn, skip_special_tokens=True) for turn in turns]
            pairs = zip(playing, texts, strict=True)
            steps = [client.step(one.id, action_of(text.strip())) for one, text in pairs]
            replies = await asyncio.gather(*steps)
            for one, turn, reply in zip(playing, turns, replies, strict=True):
                one.add(turn, sampled=True)
                one.reward += reply.reward or 0.0
                one.correct = reply.info.outcome == Outcome.CORRECT
                end = "" if turn[-1] == self.end else "<|im_end|>"
                following = self.tokenizer.encode(f"{end}\n", add_special_tokens=False)
                following += self.chat(("user", shown(reply)))
                room = CONTEXT_TOKENS - len(one.ids) - len(following)
                one.done = reply.done or room < TURN_TOKENS
                if not one.done:
                    one.add(following, sampled=False)
        return episodes

    def losses(self, rows: list[Episode], advantages: torch.Tensor) -> torch.Tensor:
        """Return the sum of minus the advantage times the mean log-probability of what was sampled.

        The policy that sampled is the one that learns, so there is no ratio to clip.
        """
        width = max(len(one.ids) for one in rows)
        ids = torch.tensor([one.ids + [self.end] * (width - len(one.ids)) for one in rows])
        mask = torch.tensor([one.mask + [0] * (width - len(one.ids)) for one in rows])[:, 1:]
        logits = self.model(ids).logits[:, :-1] / self.temperature  # padding comes last
        logprobs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        return -(advantages * (logprobs * mask).sum(1) / mask.sum(1)).sum()


def advantages_of(episodes: list[Episode], group: int) -> torch.Tensor:
    """Return how much better each episode was than its group, in standard deviations of the batch.

    Groups that are all right or all wrong count 0: they would only teach to spend fewer steps.
    """
    rewards = torch.tensor([one.reward for one in episodes]).view(-1, group)
    correct = torch.tensor([one.correct for one in episodes]).view(-1, group)
    mixed = correct.any(dim=1) & ~correct.all(dim=1)
    better = (rewards - rewards.mean(dim=1, keepdim=True)) * mixed[:, None]
    return (better / (better.std() + 1e-4)).flatten()


async def train(options: argparse.Namespace) -> list[float]:
    """Return the share of right episodes of each step."""
    torch.manual_seed(options.seed)
    player, curve = Player(options.model, options.temperature), list[float]()
    optimizer = torch.optim.AdamW(player.model.parameters(), lr=options.lr, weight_decay=0.0)
    async with in_process(create_app()) as client:
        for step in range(options.steps):
            began = time.perf_counter()
            first = step * options.groups
            drawn = [(first + n) % options.questions for n in range(options.groups)]
            seeds = [options.seed + n for n in drawn for _ in range(options.group)]
            episodes = await player.play(client, seeds)
            advantages = advantages_of(episodes, options.group)
            learned = [n for n, value in enumerate(advantages) if value]
            learned.sort(key=lambda n: len(episodes[n].ids))  # rows of like lengths, less padding
            for start in range(0, len(learned), ROWS_PER_PASS):
                part = learned[start : start + ROWS_PER_PASS]
                loss = player.losses([episodes[n] for n in part], advantages[part])
                (loss / len(episodes)).backward()
            torch.nn.utils.clip_grad_norm_(player.model.parameters(), CLIP_NORM)
            optimizer.step()
            optimizer.zero_grad()
            curve.append(sum(one.correct for one in episodes) / len(episodes))
            seconds = time.perf_counter() - began
            print(f"step {step + 1:2}  right {100 * curve[-1]:3.0f} %  {seconds:.1f} s", flush=True)
    return curve


def draw(curve: list[float], steps: int, path: Path) -> None:
    """Draw the share of right episodes in each round of the questions, of so many `steps`."""
    rounds = [curve[start : start + steps] for start in range(0, len(curve), steps)]
    figure, axes = plt.subplots(figsize=(7, 4))
    axes.plot(range(1, len(rounds) + 1), [sum(one) / len(one) for one in rounds], "o-")
    axes.set(xlabel="round of the questions", ylabel="share of right episodes", ylim=(0, 1))
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="GRPO on SQLEnv in one file.")
    toy = Path(__file__).parents[1] / "data" / "models" / "sqlenv-tiny"
    parser.add_argument("--model", default=str(toy))
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--questions", type=int, default=16, help="to practise")
    parser.add_argument("--groups", type=int, default=4, help="questions of a step")
    parser.add_argument("--group", type=int, default=8, help="episodes of each question")
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--temperature", type=float, default=1.2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("grpo_min.png"))
    options = parser.parse_args()
    curve = asyncio.run(train(options))
    draw(curve, max(1, options.questions // options.groups), options.out)
    print(f"wrote {options.out}")
