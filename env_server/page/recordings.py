"""The episodes in the folder of runs: which there are, and one of them from its line."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic_core import from_json

from shared.errors import UnknownEpisode
from shared.run_files import EPISODES, EpisodeLine, LineError, RunFiles, read_episode
from shared.run_stats import PHASES

DEPTH = ("", "*/", "*/*/")  # of a run's folder below the folder of runs
INDICES = 8  # runs whose lists are kept; one of 6,000 episodes takes 3 MB
FACETS = ("database", "difficulty", "outcome", "policy")
_PHASES = (*PHASES[:2], "train", "eval", *PHASES[2:])  # as they follow each other
TRAIN = _PHASES.index("train")


@dataclass(frozen=True, slots=True)
class Entry:
    """An episode in a list. `at` is the first byte of its line, or its id on this server."""

    at: int | str
    question_id: str
    database: str
    difficulty: str
    outcome: str
    policy: str
    steps: int
    reward: float | None = None
    order: tuple[int, ...] = ()  # of the policy: not greedy, step, place of its phase


def runs_in(folder: Path) -> dict[str, RunFiles]:
    """Return the recorded runs and evaluations by name, those that changed last first."""
    found = [
        (path.stat().st_mtime, path.parent)
        for depth in DEPTH
        for path in folder.glob(depth + EPISODES)
        if not path.parent.is_symlink()  # runs/latest is another name of one
    ]
    return {
        path.relative_to(folder).as_posix() if path != folder else folder.name: RunFiles(path)
        for _, path in sorted(found, reverse=True)
    }


def entries_of(run: RunFiles) -> tuple[list[Entry], int]:
    """Return a run's episodes and how many lines are damaged; read again if the file changed."""
    stat = run.episodes.stat()
    return _read(run.episodes, (stat.st_size, stat.st_mtime_ns))


def line_at(run: RunFiles, at: int) -> EpisodeLine:
    """Return the episode whose line begins at a byte; `UnknownEpisode` if none does."""
    try:
        with run.episodes.open("rb") as file:
            file.seek(max(0, at - 1))
            if at and file.read(1) != b"\n":
                raise LineError("the line begins elsewhere")
            return read_episode(file.readline())
    except (LineError, OSError) as error:
        name = f"{run.path.name}/{EPISODES}"
        raise UnknownEpisode(f"no episode at byte {at} of {name}: {error}") from None


@lru_cache(maxsize=INDICES)
def _read(path: Path, _version: tuple[int, int]) -> tuple[list[Entry], int]:
    entries, damaged, at = list[Entry](), 0, 0
    with path.open("rb") as file:
        for line in file:
            try:
                row = from_json(line)
                phase, mode, step = str(row["phase"]), str(row["mode"]), int(row["step"])
                place = _PHASES.index(phase) if phase in _PHASES else len(_PHASES)
                question, *texts = (str(row[name]) for name in ("question_id", *FACETS[:3]))
                database, difficulty, outcome = texts
                policy, order = policy_name(phase, mode, step), (mode != "greedy", step, place)
                played = int(row["steps"]), row["reward"]
                one = Entry(at, question, database, difficulty, outcome, policy, *played, order)
                entries.append(one)
            except (ValueError, KeyError, TypeError):
                damaged += 1
            at += len(line)
    return entries, damaged


def policy_name(phase: str, mode: str, step: int) -> str:
    """Return what people call the model that played, with the training step of its checkpoint."""
    return f"{phase}, {mode}" + (f", step {step}" if phase in ("train", "eval") else "")
