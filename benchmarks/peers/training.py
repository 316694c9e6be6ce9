"""A tiny model that learns from one peer's rewards, undisturbed and then under faults.

    python -m benchmarks.peers.training PEER FOLDER

It runs in the peer's environment and writes a JSON object to stdout. In each update TRL's own
tool-calling loop plays a group of episodes for each question: always the same look-ups, then one of
the possible answers, which the model samples. The right one earns 1, any other 0. The advantages
are GRPO's, without the rows that have no reward, as in TRL. A fault strikes after half of an
update's calls and is over before the next update.
"""

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.chaos.cluster import Cluster, free_ports
from benchmarks.chaos.faults import Chaos, Fault
from benchmarks.chaos.link import Link
from benchmarks.peers.player import Episode
from benchmarks.peers.players.trl_loop import ScriptedTrainer
from shared.actions import as_action
from shared.agents.tools import SQLEnvTools
from shared.client import SQLEnvClient
from shared.dataset import Question, load_splits
from shared.server_process import COMMAND, running_server

MODULE = "benchmarks.peers.training"
QUESTIONS, GROUP, ANSWERS, UPDATES = 8, 8, 4, 20
EPISODES = QUESTIONS * GROUP  # of an update
CALLS = 4  # of an episode
# update -> its fault. One stall is longer than the 60 s that OpenEnv's client waits for a reply.
FAULTS = {
    3: Fault("kill", 0, 5.0),
    7: Fault("cut", 0, 2.0),
    11: Fault("sleep", 0, 10.0),
    15: Fault("sleep", 0, 90.0),
}


class Checked:
    """A client that counts the replies that answer another action than the one it sent."""

    def __init__(self, client: Any, counts: Counter[str]) -> None:
        self._client, self._counts = client, counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def step(self, *arguments: Any) -> Any:
        """Take a step; its action is the last argument."""
        reply, action = self._client.step(*arguments), as_action(arguments[-1])
        sent = f"{action.action_type}: {action.argument}"
        self._counts["of_another_step"] += reply.observation.action_history[-1] != sent
        return reply


class OpenEnvTools:
    """An environment on OpenEnv's client, as TRL's examples have them (`grpo_wordle.py`)."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def reset(self, **row: Any) -> None:
        """Start an episode."""
        self.client.reset(**row)
        self.reward, self.done = 0.0, False

    def describe(self, table: str) -> str:
        """Describe a table."""
        return self._step(f"DESCRIBE: {table}")

    def sample(self, table: str) -> str:
        """Show rows."""
        return self._step(f"SAMPLE: {table}")

    def query(self, sql: str) -> str:
        """Run a statement."""
        return self._step(f"QUERY: {sql}")

    def answer(self, answer: str) -> str:
        """Answer the question."""
        return self._step(f"ANSWER: {answer}")

    def get_reward(self) -> float:
        """Return the reward so far, as `reward_func` of the examples does."""
        return self.reward

    def _step(self, action: str) -> str:
        if self.done:
            raise ValueError("Game over.")
        result = self.client.step(action)
        self.done = result.done
        self.reward = float(result.done and result.reward > 0.5)  # a wrong answer earns less
        return str(result.observation.result)


class OwnTools(SQLEnvTools):
    """SQLEnv's tools, with a reward for the right answer only."""

    @property
    def done(self) -> bool:
        """Whether the episode came to its end."""
        return self.outcome is not None

    def get_reward(self) -> float | None:
        """Return the reward; None if the server failed."""
        return None if self.lost else float(self.outcome == "correct")


Tools = Sequence[OwnTools | OpenEnvTools]


@contextmanager
def sqlenv_tools(url: str, counts: Counter[str]) -> Iterator[Tools]:
    """Yield SQLEnv's tools, which share a client with its default limits."""
    with SQLEnvClient(url).sync() as client:
        checked: Any = Checked(client, counts)
        yield [OwnTools(checked) for _ in range(EPISODES)]


@contextmanager
def openenv_tools(url: str, counts: Counter[str]) -> Iterator[Tools]:
    """Yield tools on OpenEnv's client; each has a connection of its own, with default limits."""
    from benchmarks.peers.players.openenv import Client

    with ExitStack() as stack:
        clients = [Client(base_url=url).sync() for _ in range(EPISODES)]
        opened = [stack.enter_context(closing(one)) for one in clients]
        yield [OpenEnvTools(Checked(one, counts)) for one in opened]


class Peer(NamedTuple):
    """Its tools, its server's command and options, and the packages whose versions count."""

    tools: Callable[[str, Counter[str]], Any]
    command: Sequence[str]
    options: Sequence[str]
    packages: Sequence[str]


PEERS = {
    "sqlenv": Peer(sqlenv_tools, COMMAND, ("--workers", "1"), ("trl",)),
    "openenv": Peer(
        openenv_tools,
        (sys.executable, "-m", "benchmarks.peers.openenv_server"),
        # twice the episodes, so that sessions that a fault left behind take no other's place
        ("--sessions", str(2 * EPISODES)),
        ("openenv", "trl"),
    ),
}


class DisturbedTrainer(ScriptedTrainer):
    """TRL's loop, in which each call of a tool first lets the faults that are due happen."""

    def __init__(self, environments: Sequence[Any], chaos: Chaos) -> None:
        super().__init__(environments)
        self._chaos, self._made = chaos, 0
        self._sync_tool_dicts = [
            {name: partial(self._call, tool) for name, tool in tools.items()}
            for tools in self._sync_tool_dicts
        ]

    def _call(self, tool: Callable[..., str], **arguments: str) -> str:
        self._chaos.pass_step(self._made)
        self._made += 1
        return tool(**arguments)


@dataclass
class Update:
    """What happened in an update."""

    fault: str
    failed_calls: int = 0  # each is an error that the model reads as its tool's result
    of_another_step: int = 0  # replies
    lost: int = 0  # episodes whose answer was not judged
    left_out: int = 0  # rows without a reward
    became_zero: int = 0  # rewards of right answers
    seconds: float = 0.0


def possible_answers(questions: Sequence[Question]) -> dict[str, list[str]]:
    """Return the possible answers of some questions, by id: the first one is right."""
    texts, stream = sorted({one.answer_text for one in questions}), random.Random(0)
    chosen = questions[:: len(questions) // QUESTIONS][:QUESTIONS]
    return {
        one.question_id: [
            one.answer_text,
            *stream.sample([text for text in texts if text != one.answer_text], ANSWERS - 1),
        ]
        for one in chosen
    }


def script(question: Question, answer: str) -> Episode:
    """Return an episode of `CALLS` actions that gives an answer."""
    table = question.tables_involved[0]
    looks = [f"DESCRIBE: {table}", f"SAMPLE: {table}", f'QUERY: SELECT COUNT(*) FROM "{table}"']
    return Episode(question.question_id, [*looks, f"ANSWER: {answer}"])


def advantages(rewards: Tensor) -> Tensor:
    """Return GRPO's advantages of rows of rewards; that of a reward that is NaN is 0."""
    centred = rewards - rewards.nanmean(dim=1, keepdim=True)
    spread = centred.square().nanmean(dim=1, keepdim=True).sqrt()
    return (centred / (spread + 1e-4)).nan_to_num(0.0)


class Training:
    """The trainings of one peer, on its running server."""

    def __init__(self, tools: Tools, counts: Counter[str], cluster: Cluster, data: Path) -> None:
        self._tools, self._counts, self._cluster = tools, counts, cluster
        questions = load_splits(data)["train"]
        self._answers = possible_answers(questions)
        self._asked = [one for one in questions if one.question_id in self._answers]

    def run(self, faults: Mapping[int, Fault]) -> tuple[Tensor, list[Update]]:
        """Train a model; return how its weights changed, and what happened in each update."""
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(QUESTIONS, 16), nn.Linear(16, ANSWERS))
        start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        numbers = torch.arange(QUESTIONS).repeat_interleave(GROUP)
        updates = []
        for number in range(UPDATES):
            log_probs = model(numbers).log_softmax(dim=1)
            choices = log_probs.detach().exp().multinomial(1)
            fault = [faults[number]] if number in faults else []
            rewards, update = self._play(numbers.tolist(), choices[:, 0].tolist(), fault)
            wanted = advantages(rewards.view(QUESTIONS, GROUP)).view(-1)
            optimizer.zero_grad()
            (-wanted * log_probs.gather(1, choices)[:, 0]).mean().backward()
            optimizer.step()
            updates.append(update)
        return nn.utils.parameters_to_vector(model.parameters()).detach() - start, updates

    def _play(
        self, numbers: Sequence[int], choices: Sequence[int], fault: Sequence[Fault]
    ) -> tuple[Tensor, Update]:
        """Play an update's episodes; return their rewards, NaN for those that have none."""
        asked = [self._asked[number] for number in numbers]
        pairs = zip(asked, choices, strict=True)
        episodes = [script(one, self._answers[one.question_id][choice]) for one, choice in pairs]
        update = Update("".join(f"{one.kind}, {one.seconds:g} s" for one in fault))
        self._counts.clear()
        began = time.monotonic()
        with Chaos(self._cluster, fault, every=EPISODES * CALLS // 2) as chaos:
            for tools, one in zip(self._tools, episodes, strict=True):
                tools.reset(question_id=one.question_id, step_budget=CALLS)
            _, update.failed_calls = DisturbedTrainer(self._tools, chaos).play(episodes)
            rewards = [one.get_reward() for one in self._tools]
            update.seconds = time.monotonic() - began
        update.of_another_step = self._counts["of_another_step"]
        update.lost = sum(not one.done for one in self._tools)
        update.left_out = rewards.count(None)
        right = [choice == 0 for choice in choices]
        update.became_zero = sum(
            r and reward == 0.0 for r, reward in zip(right, rewards, strict=True)
        )
        return torch.tensor([torch.nan if one is None else one for one in rewards]), update


def measure(peer: Peer, data: Path) -> dict[str, Any]:
    """Train undisturbed and under faults; return what happened and how far the weights differ."""
    counts: Counter[str] = Counter()
    [port] = free_ports(1)
    with ExitStack() as stack:
        started = running_server(data, *peer.options, port=port, command=peer.command)
        server = stack.enter_context(started)
        cluster = Cluster([server], [stack.enter_context(Link(server.port))])
        tools = stack.enter_context(peer.tools(cluster.urls[0], counts))
        training = Training(tools, counts, cluster, data)
        (calm, undisturbed), (change, disturbed) = training.run({}), training.run(FAULTS)
    return {
        "versions": {name: version(name) for name in peer.packages},
        "weights_changed": float(calm.norm()),
        "weights_differ": float((change - calm).norm() / calm.norm()),
        "undisturbed": [asdict(one) for one in undisturbed],
        "disturbed": [asdict(one) for one in disturbed],
    }


def main(name: str, data: str) -> None:
    """Measure a peer; what a package prints goes to stderr."""
    out, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps(measure(PEERS[name], Path(data))), file=out)


if __name__ == "__main__":
    main(*sys.argv[1:])
