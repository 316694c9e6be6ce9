"""Lists of items that can be filtered, of which one is shown at a time, such as the questions that
were measured. All items are in the page: their markup is compressed in chunks, of which the page's
script unpacks the one that it shows. Without scripts the first items are lists to open."""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from shared.dataset import AnyQuestion, Question
from shared.pages.markup import action_markup, cut, observation_markup, short
from shared.run_stats import MODES, PHASES
from trainer.report.run_reader import LoadedRun
from trainer.rollout.prompts import result_of
from trainer.run.records import EpisodeRecord
from trainer.run.transcripts import by_kind

CHUNK = 16  # items compressed together: what showing one of them unpacks
LISTED = 20  # items in a page without scripts
SIDES = 2  # policies of a question side by side; the others are lists to open
FACETS = ("database", "difficulty", "answer is a", "databases")
UNKNOWN = "unknown"
NAMES = {"random": "random actions", "before": "before training", "after": "after training"}

# policy -> question id -> its episodes
Policies = Mapping[str, Mapping[str, Sequence[EpisodeRecord]]]


@dataclass(frozen=True)
class Item:
    """One item. `facets` are its values of the browser's filters; `outcomes` those by policy."""

    id: str
    label: str
    facets: Sequence[str]
    markup: str
    outcomes: Sequence[Sequence[str]] = ()


def browser(
    templates: Environment,
    noun: str,
    facets: Sequence[str],
    items: Sequence[Item],
    policies: Sequence[str] = (),
    first: int = 0,
) -> Markup:
    if not items:
        return Markup("")
    index = {
        "facets": facets,
        "policies": policies,
        "items": [[one.id, one.label, one.facets, one.outcomes] for one in items],
        "chunk": CHUNK,
        "first": first,
    }
    chunks = []
    for start in range(0, len(items), CHUNK):
        text = json.dumps([one.markup for one in items[start : start + CHUNK]], ensure_ascii=False)
        chunks.append(base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode())
    shown = {"listed": items[:LISTED], "rest": len(items) - LISTED, "first": first}
    template = templates.get_template("browser.html.j2")
    return Markup(template.render(noun=noun, index=index, chunks=chunks, **shown))


def policies_of(run: LoadedRun) -> dict[str, dict[str, Sequence[EpisodeRecord]]]:
    return {
        f"{NAMES[phase]}, {mode}": {key: [one] for key, one in result.by_question().items()}
        for mode in MODES
        for phase in (*PHASES[1:], PHASES[0])
        if (result := run.evaluations.get(phase, {}).get(mode)) is not None
    }


def kinds_of(run: LoadedRun) -> dict[str, list[str]]:
    before, after = (run.evaluations.get(phase, {}).get("greedy") for phase in PHASES[1:])
    if before is None or after is None:
        return {}
    return by_kind(before.by_question(), after.by_question())


def question_browser(
    templates: Environment,
    policies: Policies,
    questions: Mapping[str, AnyQuestion],
    kinds: Mapping[str, Sequence[str]],
) -> tuple[Markup, int]:
    kind_of = {key: kind for kind, keys in kinds.items() for key in keys}
    keys = dict.fromkeys([*kind_of, *(key for played in policies.values() for key in played)])
    template = templates.get_template("question.html.j2")
    items = []
    for key in keys:
        played: dict[str, list[dict[str, Any]]] = {
            name: [
                {
                    "title": name if len(episodes) == 1 else f"{name}, sample {number}",
                    "record": one,
                    "turns": turns_markup(one),
                }
                for number, one in enumerate(episodes, start=1)
            ]
            for name, found in policies.items()
            if (episodes := found.get(key))
        }
        record, question = next(iter(played.values()))[0]["record"], questions.get(key)
        text = question.question_text if question else key
        gold = question if isinstance(question, Question) else None
        markup = template.render(
            text=cut(text, 2_000),
            record=record,
            gold_sql=cut(gold.gold_sql, 2_000) if gold else "",
            gold_answer=cut(gold.answer_text, 600) if gold else "",
            sides=[one for shown in list(played.values())[:SIDES] for one in shown],
            others=[one for shown in list(played.values())[SIDES:] for one in shown],
        )
        facets = [record.database, record.difficulty]
        facets += [gold.answer_type if gold else UNKNOWN, record.part]
        if kinds:
            facets.insert(0, kind_of.get(key, "not measured before and after"))
        outcomes = [
            sorted({str(one.outcome) for one in found.get(key, ())}) for found in policies.values()
        ]
        label = f"{facets[0]} · {short(text, 140)}"
        items.append(Item(f"question-{key}", label, facets, markup, outcomes))
    names = ("change", *FACETS) if kinds else FACETS
    return browser(templates, "question", names, items, [*policies]), len(items)


def turns_markup(record: EpisodeRecord) -> list[dict[str, Any]]:
    """Return the actions with their results and rewards for their template. `raw_text` is the
    model's own text if it differs from the action; the reward is None without a reply."""
    turns = []
    for turn, answered, reward in zip_longest(record.turns, record.actions, record.rewards):
        text, observation = turn
        action = text if answered is None else answered
        turns.append(
            {
                "action": action_markup(action),
                "observation": observation_markup(action, result_of(observation)),
                "reward": reward,
                "raw_text": "" if action == text else cut(text, 600),
            }
        )
    return turns
