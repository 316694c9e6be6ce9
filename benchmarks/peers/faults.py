"""What faults of a server do to a training: SQLEnv, and OpenEnv with TRL, in one harness.

    python -m benchmarks.peers.faults [--peer NAME] [--json PATH]

Both peers host SQLEnv's environment, are played by TRL's loop through an `environment_factory`'s
tools, and have their default limits. In each update TRL's own tool-calling loop plays a group of
episodes for each question: always the same look-ups, then one of the possible answers, which a tiny
model samples. The right one earns 1, any other 0. The advantages are GRPO's, without the rows that
have no reward, as in TRL. A fault strikes after half of an update's calls and is over before the
next update. Afterwards, weights are compared with those of an undisturbed training.
"""

import random
import sys
import sysconfig
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partialmethod
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from torch import Tensor, nn

from benchmarks.measuring import DATA, DataDir, JsonPath
from benchmarks.peers.environments import Worker, make_environment, report_each
from benchmarks.peers.players.trl_loop import ScriptedTrainer
from benchmarks.peers.worker import Answer, Episode
from shared.agents.tools import SQLEnvTools
from shared.client import SQLEnvClient
from shared.dataset import Question, load_splits
from shared.server_process import COMMAND, running_server
from tests.chaos.cluster import Cluster, free_ports
from tests.chaos.faults import Chaos, Fault
from tests.chaos.link import Link

TIMEOUT_S = 3600.0
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


@dataclass
class Update:
    fault: str
    lost: int = 0  # episodes whose answer was not judged
    became_zero: int = 0  # rewards of right answers
    seconds: float = 0.0


class Watch:
    """What a training's clients share: the faults of an update, and how many steps it has had."""

    def begin(self, chaos: Chaos) -> None:
        self.chaos, self.steps = chaos, 0


class WatchedClient:
    """A client whose steps let faults happen."""

    def __init__(self, client: Any, watch: Watch) -> None:
        self._client, self._watch = client, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def step(self, *arguments: Any) -> Any:
        self._watch.chaos.pass_step(self._watch.steps)
        self._watch.steps += 1
        return self._client.step(*arguments)


class OpenEnvTools:
    """An environment on OpenEnv's client, as TRL's examples have them (`grpo_wordle.py`)."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def reset(self, **row: Any) -> None:
        self.client.reset(**row)
        self.reward, self.done = 0.0, False

    def get_reward(self) -> float:
        """Return the reward so far, as `reward_func` of the examples does."""
        return self.reward

    def _step(self, kind: str, **argument: str) -> str:
        if self.done:
            raise ValueError("Game over.")
        [text] = argument.values()
        result = self.client.step(f"{kind}: {text}")
        self.done = result.done
        self.reward = float(result.done and result.reward > 0.5)  # a wrong answer earns less
        return str(result.observation.result)

    describe = partialmethod(_step, "DESCRIBE")
    sample = partialmethod(_step, "SAMPLE")
    query = partialmethod(_step, "QUERY")
    answer = partialmethod(_step, "ANSWER")


class OwnTools(SQLEnvTools):
    """SQLEnv's tools, with a reward for the right answer only."""

    @property
    def done(self) -> bool:
        return self.outcome is not None

    def get_reward(self) -> float | None:
        """Return the reward; None if the server failed."""
        return None if self.lost else float(self.outcome == "correct")


Tools = Sequence[OwnTools | OpenEnvTools]


@contextmanager
def sqlenv_tools(url: str, watch: Watch) -> Iterator[Tools]:
    """Yield SQLEnv's tools, which share a client with its default limits."""
    with SQLEnvClient(url).sync() as client:
        watched: Any = WatchedClient(client, watch)
        yield [OwnTools(watched) for _ in range(EPISODES)]


@contextmanager
def openenv_tools(url: str, watch: Watch) -> Iterator[Tools]:
    """Yield tools on OpenEnv's client; each has a connection of its own, with default limits."""
    from benchmarks.peers.players.openenv import Client

    with ExitStack() as stack:
        clients = [Client(base_url=url).sync() for _ in range(EPISODES)]
        opened = [stack.enter_context(closing(one)) for one in clients]
        yield [OpenEnvTools(WatchedClient(one, watch)) for one in opened]


class Peer(NamedTuple):
    """Its tools, its server's command and options, and the packages whose versions count."""

    tools: Callable[[str, Watch], Any]
    command: Sequence[str]
    options: Sequence[str]
    packages: Sequence[str]


OPENENV = (sys.executable, "-m", "benchmarks.peers.openenv_server")
PEERS = {
    "sqlenv": Peer(sqlenv_tools, COMMAND, ("--workers", "1"), ("trl",)),
    # twice the sessions, so that those that a fault left behind take no episode's place
    "openenv": Peer(
        openenv_tools, OPENENV, ("--sessions", str(2 * EPISODES)), ("openenv", "trl")
    ),
}  # fmt: skip


def possible_answers(question: Question, questions: Sequence[Question]) -> list[str]:
    """Return the right answer, and then wrong ones: other questions'."""
    others = sorted({one.answer_text for one in questions} - {question.answer_text})
    return [question.answer_text, *random.Random(0).sample(others, ANSWERS - 1)]


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

    def __init__(self, tools: Tools, watch: Watch, cluster: Cluster, data: Path) -> None:
        self._tools, self._watch, self._cluster = tools, watch, cluster
        questions = load_splits(data)["train"]
        self._asked = questions[:: len(questions) // QUESTIONS][:QUESTIONS]
        self._answers = [possible_answers(one, questions) for one in self._asked]

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
            pairs = [*zip(numbers.tolist(), choices[:, 0].tolist(), strict=True)]
            rewards, update = self._play(pairs, faults.get(number))
            wanted = advantages(rewards.view(QUESTIONS, GROUP)).view(-1)
            optimizer.zero_grad()
            (-wanted * log_probs.gather(1, choices)[:, 0]).mean().backward()
            optimizer.step()
            updates.append(update)
        return nn.utils.parameters_to_vector(model.parameters()).detach() - start, updates

    def _play(
        self, choices: Sequence[tuple[int, int]], fault: Fault | None
    ) -> tuple[Tensor, Update]:
        """Play episodes of questions and answers; return the rewards, NaN where there is none."""
        episodes = [script(self._asked[one], self._answers[one][choice]) for one, choice in choices]
        update = Update(f"{fault.kind}, {fault.seconds:g} s" if fault else "")
        faults = [fault] if fault else []
        with Chaos(self._cluster, faults, every=EPISODES * CALLS // 2) as chaos:
            self._watch.begin(chaos)
            began = time.monotonic()
            for tools, one in zip(self._tools, episodes, strict=True):
                tools.reset(question_id=one.question_id, step_budget=CALLS)
            ScriptedTrainer(self._tools).play(episodes)
            rewards = [one.get_reward() for one in self._tools]
            update.seconds = time.monotonic() - began
        update.lost = sum(not one.done for one in self._tools)
        pairs = zip(choices, rewards, strict=True)
        update.became_zero = sum(choice == 0 and reward == 0.0 for (_, choice), reward in pairs)
        return torch.tensor([torch.nan if one is None else one for one in rewards]), update


def measure(peer: Peer, data: Path) -> dict[str, Any]:
    """Train undisturbed and under faults; return what happened and how far the weights differ."""
    [port] = free_ports(1)
    started = running_server(data, *peer.options, port=port, command=peer.command)
    with started as server, Link(server.port) as link:
        cluster, watch = Cluster([server], [link]), Watch()
        with peer.tools(cluster.urls[0], watch) as tools:
            training = Training(tools, watch, cluster, data)
            (calm, undisturbed), (change, disturbed) = training.run({}), training.run(FAULTS)
    return {
        "weights_changed": float(calm.norm()),
        "weights_differ": float((change - calm).norm() / calm.norm()),
        "undisturbed": [asdict(one) for one in undisturbed],
        "disturbed": [asdict(one) for one in disturbed],
    }


@asynccontextmanager
async def opened(name: str, data: str) -> AsyncIterator[Answer]:
    """Measure a peer, whatever the request is."""

    async def answer(_: Any) -> dict[str, Any]:
        return measure(PEERS[name], Path(data))

    yield answer


def peer_python(name: str) -> Path:
    """Return the Python of a peer, which finds TRL and torch here, after its own packages."""
    if name == "sqlenv":
        return Path(sys.executable)
    python = make_environment(name)
    [packages] = python.parents[1].glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    (packages / "sqlenv.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    return python


def measure_apart(name: str, data: Path) -> dict[str, Any]:
    """Return what `measure` finds in a process of the peer's."""
    python, packages = peer_python(name), PEERS[name].packages
    with tempfile.TemporaryDirectory(prefix="sqlenv-peers-") as scratch:
        log, arguments = Path(scratch, "log"), (name, str(data.resolve()))
        with Worker(python, "faults:opened", packages, *arguments, log=log) as worker:
            found = worker.ask(None, TIMEOUT_S)
            return {"versions": worker.versions, **found}


def main(
    data: DataDir = DATA,
    peer: Annotated[list[str] | None, typer.Option(help="Peer; repeatable.")] = None,
    json_path: JsonPath = None,
) -> None:
    """Compare what faults of a server do to a training."""
    report_each(peer, PEERS, lambda name: measure_apart(name, data), json_path)


if __name__ == "__main__":
    typer.run(main)
