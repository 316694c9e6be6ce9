"""Sources of demonstrations: what the options of `python -m trainer sft` name, as scripts.

- `oracle`: the gold queries of the training questions; `oracle:DIR` those of another data directory
- `explorer`, `explorer:DIR`: the same, but in a database of up to `EXPLORED_TABLES` tables every
  table is described (in a larger one the gold query's, as above), and at times a first query
  mistakes the name of a column; the gold query decides which tables are sampled
- `run:DIR`, `completed:DIR`, `recovered:DIR`, `corrected:DIR`: episodes that a run or an evaluation
  recorded on training questions (`trainer.sft.recorded`)
"""

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from shared.dataset import Question, check_databases, load_questions, questions_path
from shared.run_files import RunFiles
from trainer.config import GRPOConfig
from trainer.errors import ConfigError
from trainer.rollout.dataset import check_training_questions
from trainer.sft.recorded import RECORDED, recorded_scripts
from trainer.sft.scripts import Script, explorer_script, oracle_script, place

ORACLE, EXPLORER = "oracle", "explorer"
MISTAKES = 4  # one explorer's script of so many has a mistaken query


class Source(NamedTuple):
    """A parsed source: its kind, and the folder that it names, if any."""

    text: str
    kind: str
    folder: Path | None

    def data_dir(self, config: GRPOConfig) -> Path:
        """Return the data that its questions are of."""
        named = self.folder if self.kind in (ORACLE, EXPLORER) else None
        return named or config.data_dir


def parse_source(text: str) -> Source:
    """Return the source that `text` names. `ConfigError` for an unknown one or a missing folder."""
    kind, colon, name = text.partition(":")
    folder = Path(name) if name else None
    if kind not in (ORACLE, EXPLORER, *RECORDED) or bool(colon) != bool(name):
        raise ConfigError(
            f"no source of demonstrations {text!r}: use {ORACLE}, {ORACLE}:DIR, {EXPLORER}, "
            f"{EXPLORER}:DIR, {', '.join(f'{kind}:DIR' for kind in RECORDED)}"
        )
    if kind in RECORDED and (folder is None or not RunFiles(folder).episodes.is_file()):
        raise ConfigError(
            f"{text} has no episodes.jsonl: name the folder of a run or of an evaluation, such as "
            f"{kind}:runs/latest"
        )
    if kind not in RECORDED and folder and not questions_path(folder, "train").is_file():
        raise ConfigError(
            f"{text} has no training questions ({questions_path(folder, 'train')}): name a data "
            "directory, such as one that 'python -m data import' wrote"
        )
    return Source(text, kind, folder)


def scripts_of(source: Source, config: GRPOConfig) -> list[Script]:
    """Return the scripts of a source."""
    text, kind, folder = source
    data_dir = source.data_dir(config)
    questions = training_questions(data_dir, config)
    if kind == ORACLE:
        return [Script(text, *place(one), oracle_script(one)) for one in questions]
    if kind == EXPLORER:
        return [
            explorer_script(one, text, data_dir, mistaking=index % MISTAKES == 0)
            for index, one in enumerate(questions)
        ]
    assert folder is not None
    return recorded_scripts(text, kind, folder, questions)


def training_questions(data_dir: Path, config: GRPOConfig) -> list[Question]:
    """Return the training questions of `config.difficulty_filter` in a data directory."""
    same = data_dir == config.data_dir
    path = Path(config.questions_path) if same else questions_path(data_dir, "train")
    kept = [one for one in load_questions(path) if one.difficulty in config.difficulty_filter]
    check_training_questions((one.question_id for one in kept), config)
    check_databases(data_dir, kept)
    return kept


def balanced(scripts: Iterable[Script], seed: int) -> list[Script]:
    """Shuffle the scripts so that any first part takes about as many from each database."""
    order = sorted(scripts, key=lambda one: (one.question_id, one.actions))
    random.Random(f"sft:{seed}").shuffle(order)
    seen: Counter[str] = Counter()
    ranked = []
    for script in order:
        ranked.append((seen[script.database], script))
        seen[script.database] += 1
    return [script for _, script in sorted(ranked, key=lambda item: item[0])]
