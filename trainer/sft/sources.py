"""Sources of demonstrations, which `python -m trainer sft --source` names, as scripts."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from shared.dataset import OPEN, Question, has_split, load_split
from shared.run_files import RunFiles
from trainer.config.settings import ConfigError, GRPOConfig
from trainer.sft.demonstration_kinds import RECORDED, recorded_scripts
from trainer.sft.scripts import Script, oracle_script, place

ORACLE = "oracle"
SPLITS = ("train", OPEN)  # that are taught


def check_source(text: str) -> None:
    kind, _, name = text.partition(":")
    if text == ORACLE:
        return
    if kind not in RECORDED or not name:
        known = ", ".join(f"{kind}:DIR" for kind in RECORDED)
        raise ConfigError(f"no source of demonstrations {text!r}: use {ORACLE}, {known}")
    if not RunFiles(Path(name)).episodes.is_file():
        raise ConfigError(
            f"{text} has no episodes.jsonl: name the folder of a run or of an evaluation, such as "
            f"{kind}:runs/latest"
        )


def scripts_of(source: str, config: GRPOConfig) -> list[Script]:
    train, levels = config.questions_path, (*config.difficulty_filter, OPEN)
    found = (one for split in SPLITS if has_split(train, split) for one in load_split(train, split))
    questions = [one for one in found if one.difficulty in levels]
    if source == ORACLE:
        golds = (one for one in questions if isinstance(one, Question))
        return [Script(source, *place(one), oracle_script(one)) for one in golds]
    kind, _, folder = source.partition(":")
    return recorded_scripts(source, kind, Path(folder), questions)


def consistent(scripts: Iterable[Script], labels: dict[str, str]) -> Iterator[Script]:
    for one in scripts:
        if one.label is None or labels.setdefault(one.question_id, one.label) == one.label:
            yield one


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
