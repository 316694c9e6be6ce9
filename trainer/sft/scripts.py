"""Scripts to demonstrate: the actions of an expert, from gold queries or from recorded episodes.

The sources:

- `oracle`: the gold queries of the training questions; `oracle:DIR` those of another data directory
- `explorer`, `explorer:DIR`: the same, but in a database of up to `EXPLORED_TABLES` tables every
  table is described (in a larger one the gold query's, as above), and at times a first query
  mistakes the name of a column; the gold query decides which tables are sampled
- `generated`: fresh databases and questions, made for this run
- `run:DIR`: the correct episodes that a run or an evaluation recorded on training questions
- `corrected:DIR`: its incorrect episodes up to their first failed query, and then the gold query
- `completed:DIR`: its incorrect episodes up to a query that returned the gold's rows, by its reward,
  and then the answer
- `recovered:DIR`: its incorrect episodes up to their first failed query, and then the query of
  another episode of the same question that was right

`run`, `completed` and `recovered` need rewards alone, no gold query.
"""

import random
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shared.dataset import Question, check_databases, database_path, load_questions, questions_path
from shared.models import Outcome
from shared.run_files import EpisodeLine, RunFiles
from shared.sqltext import sql_name
from trainer.config import REWARD_WEIGHTS, GRPOConfig
from trainer.errors import ConfigError, RunError
from trainer.pretraining.pretrain import Stage, generate, load_scripts
from trainer.rollout.dataset import check_training_questions
from trainer.run.folder import episode_lines

ORACLE, EXPLORER, GENERATED = "oracle", "explorer", "generated"
RUN, CORRECTED, COMPLETED, RECOVERED = "run", "corrected", "completed", "recovered"
RECORDED = (RUN, CORRECTED, COMPLETED, RECOVERED)  # sources that read the episodes of a folder
GENERATED_ROWS = 800  # without a limit on rows
GENERATED_PER_DATABASE = 8
# of generated demonstrations; a third of these recover from an error, half are left out
GENERATED_NOISE = 0.3
EXPLORED_TABLES = 5  # of a larger database an explorer describes the gold query's tables alone
MISTAKES = 4  # one explorer's script of so many has a mistaken query

UNANSWERED = (Outcome.WRONG, Outcome.BUDGET)
# comments are white space: on one line, `--` would hide the rest of the query
_QUOTED_OR_SPACE = re.compile(
    r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\])|(?:\s|--[^\n]*|/\*.*?\*/)+""", re.DOTALL
)
_QUOTED_OR_WORD = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|\w+""")
# a column compared with text: T1.name = 'x', name LIKE "x%", name IN ('x', ...)
_COMPARED = re.compile(
    r"""(?:\b(\w+)\.)?["`\[]?\b\w+["`\]]?\s*(?:=|!=|<>|\bLIKE\b|\bIN\s*\()\s*['"]""", re.I
)
_TABLE = re.compile(
    r"""\b(?:FROM|JOIN)\s+["`\[]?(\w+)["`\]]?(?:\s+(?:AS\s+)?["`\[]?(\w+))?""", re.I
)


_COLUMNS = (
    "SELECT m.name, c.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c "
    "WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
    "ORDER BY m.rowid, c.cid"
)


@dataclass(frozen=True)
class Script:
    """The actions of one episode, of which the last is the answer.

    `errors` of them must be answered with an error; None: any number. The first `context` actions
    are replayed, but not taught.
    """

    source: str
    question_id: str
    database: str
    actions: tuple[str, ...]
    errors: int | None = None
    context: int = 0


@dataclass(frozen=True)
class Source:
    """A parsed source: its kind, and the folder that it names, if any."""

    text: str
    kind: str
    folder: Path | None

    def data_dir(self, config: GRPOConfig) -> Path:
        """Return the data that its questions are of; `generated` has none yet."""
        named = self.folder if self.kind in (ORACLE, EXPLORER) else None
        return named or config.data_dir


def parse_source(text: str) -> Source:
    """Return the source that `text` names. `ConfigError` for an unknown one or a missing folder."""
    kind, colon, name = text.partition(":")
    folder = Path(name) if name else None
    if kind not in (ORACLE, EXPLORER, GENERATED, *RECORDED) or bool(colon) != bool(name):
        raise ConfigError(
            f"no source of demonstrations {text!r}: use {ORACLE}, {ORACLE}:DIR, {EXPLORER}, "
            f"{EXPLORER}:DIR, {GENERATED}, {', '.join(f'{kind}:DIR' for kind in RECORDED)}"
        )
    if kind in RECORDED and (folder is None or not RunFiles(folder).episodes.is_file()):
        raise ConfigError(
            f"{text} has no episodes.jsonl: name the folder of a run or of an evaluation, such as "
            f"{kind}:runs/latest"
        )
    if kind == GENERATED and folder is not None:
        raise ConfigError(f"{GENERATED} takes no folder, as its databases are made for the run")
    if kind in (ORACLE, EXPLORER) and folder and not questions_path(folder, "train").is_file():
        raise ConfigError(
            f"{text} has no training questions ({questions_path(folder, 'train')}): name a data "
            "directory, such as one that 'python -m data import' wrote"
        )
    return Source(text, kind, folder)


def scripts_of(
    source: Source, config: GRPOConfig, rows: int, workspace: Path, report: Callable[[str], None]
) -> tuple[Path, list[Script]]:
    """Return the data directory that the scripts are for, and the scripts.

    `generated` data are written below `workspace`, enough for `rows`; 0: for `GENERATED_ROWS`.
    """
    if source.kind == GENERATED:
        # a database may yield fewer questions, and some demonstrations are left out
        count = 1 + round(1.3 * (rows or GENERATED_ROWS) / GENERATED_PER_DATABASE)
        stage = Stage(source.kind, count, GENERATED_PER_DATABASE, GENERATED_NOISE)
        data_dir = generate(workspace, stage, config.seed, report)
        questions = training_questions(data_dir, config)
        played = load_scripts(data_dir)
        scripts = [(one, recovering(one, played[one.question_id])) for one in questions]
        made = [Script(source.text, *_place(one), actions) for one, actions in scripts if actions]
        return data_dir, made
    data_dir = source.data_dir(config)
    questions = training_questions(data_dir, config)
    if source.kind == ORACLE:
        return data_dir, [
            Script(source.text, *_place(one), oracle_script(one)) for one in questions
        ]
    if source.kind == EXPLORER:
        return data_dir, [
            explorer_script(one, source.text, data_dir, mistaking=index % MISTAKES == 0)
            for index, one in enumerate(questions)
        ]
    assert source.folder is not None
    return data_dir, _RECORDED[source.kind](source.text, source.folder, questions)


def training_questions(data_dir: Path, config: GRPOConfig) -> list[Question]:
    """Return the training questions of `config.difficulty_filter` in a data directory."""
    same = data_dir == config.data_dir
    path = Path(config.questions_path) if same else questions_path(data_dir, "train")
    kept = [one for one in load_questions(path) if one.difficulty in config.difficulty_filter]
    check_training_questions((one.question_id for one in kept), config)
    check_databases(data_dir, kept)
    return kept


def oracle_script(question: Question) -> tuple[str, ...]:
    """Describe every table of the gold query, sample those whose text it compares, run it and give
    the gold answer: text as it is, a list as a JSON array, a table as JSON rows."""
    return _script(question, question.tables_involved)


def explorer_script(question: Question, source: str, data_dir: Path, mistaking: bool) -> Script:
    """Return the oracle's script with every table of a small database described, in its order.

    With `mistaking`, a query that mistakes the name of a column comes before the right one, if
    there is such a mistake; its error shows the tables' columns.
    """
    columns = schema_of(database_path(data_dir, question.database_name))
    gold = {name.lower() for name in question.tables_involved}
    small = len(columns) <= EXPLORED_TABLES
    described = [name for name in columns if small or name.lower() in gold]
    *explored, query, answer = _script(question, described)
    names = {name for table in columns for name in columns[table]}
    wrong = mistaken(one_line(question.gold_sql), names) if mistaking else None
    tries = (f"QUERY: {wrong}", query) if wrong else (query,)
    return Script(source, *_place(question), (*explored, *tries, answer), len(tries) - 1)


def _script(question: Question, described: Sequence[str]) -> tuple[str, ...]:
    sql = one_line(question.gold_sql)
    describes = [f"DESCRIBE: {sql_name(table)}" for table in described]
    samples = [f"SAMPLE: {sql_name(table)}" for table in compared_tables(sql, described)]
    return (*describes, *samples, f"QUERY: {sql}", answer_of(question))


def mistaken(sql: str, columns: Collection[str]) -> str | None:
    """Return the query with a column's name as one might guess it: `PetType` as `pet_type`,
    `pet_age` as `age` and `age` as `ages`. `columns` are all names, in lower case. None if every
    guess is one of them too."""
    words = [found[0] for found in _QUOTED_OR_WORD.finditer(sql)]
    for name in dict.fromkeys(word for word in words if word.lower() in columns):
        parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        guesses = (parted, name.partition("_")[2], name.replace("_", ""), f"{name}s")
        for guess in guesses:
            if guess and guess.lower() not in {*columns, *map(str.lower, words)}:
                pieces = re.split(f"({_QUOTED_OR_WORD.pattern})", sql)
                return "".join(guess if piece == name else piece for piece in pieces)
    return None


@cache
def schema_of(path: Path) -> dict[str, list[str]]:
    """Return the names of a database's tables in its order, each with its columns in lower case."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        tables: dict[str, list[str]] = {}
        for table, column in connection.execute(_COLUMNS):
            tables.setdefault(table, []).append(column.lower())
    return tables


def recovering(question: Question, actions: Sequence[str]) -> tuple[str, ...]:
    """Return a generated demonstration with the answer as the oracle writes it; nothing for one
    that answers without the gold query or repeats an action."""
    taught = f"QUERY: {question.gold_sql}" in actions and len(set(actions)) == len(actions)
    return (*actions[:-1], answer_of(question)) if taught else ()


def answer_of(question: Question) -> str:
    return f"ANSWER: {question.answer_text}"


def recorded_scripts(source: str, folder: Path, questions: Iterable[Question]) -> list[Script]:
    """Return the correct episodes of `questions` in a folder's episodes.jsonl, each script once.

    Their answers are written as the prompt asks for them. Episodes of other questions, such as
    those that a run measures on, are never taught.
    """
    scripts = [
        Script(source, *_place(one), (*map(one_line, line.actions[:-1]), answer_of(one)))
        for one, line in _episodes(folder, questions)
        if line.outcome == Outcome.CORRECT
    ]
    return _found(scripts, source, "correct episode")


def corrected_scripts(source: str, folder: Path, questions: Iterable[Question]) -> list[Script]:
    """Return the incorrect episodes of `questions` with a failed query, each put on the right way.

    An episode of a folder's episodes.jsonl is replayed up to its first query that the environment
    answered with an error. Then DESCRIBE of those tables of the gold query that were not described,
    the gold query and the answer are taught. So a model learns to correct its own mistakes (DAgger:
    Ross et al. 2011, arXiv:1011.0686). Episodes that ran the gold query before are left out.
    """
    episodes = _episodes(folder, questions)
    scripts = [
        script
        for question, line in episodes
        if (script := _put_right(source, question, line, one_line(question.gold_sql)))
    ]
    return _found(scripts, source, "incorrect episode with a failed query")


def completed_scripts(source: str, folder: Path, questions: Iterable[Question]) -> list[Script]:
    """Return the incorrect episodes of `questions` in which a query returned the gold's rows, each
    up to that query and then with the answer.

    The rewards tell which query it was: the first with which the potential reached 1.
    """
    scripts = []
    for question, line in _episodes(folder, questions):
        if line.outcome in UNANSWERED and (right := right_query(line)) is not None:
            actions = (*map(one_line, line.actions[: right + 1]), answer_of(question))
            scripts.append(Script(source, *_place(question), actions))
    return _found(scripts, source, "incorrect episode in which a query returned the right rows")


def recovered_scripts(source: str, folder: Path, questions: Iterable[Question]) -> list[Script]:
    """Return the incorrect episodes of `questions` with a failed query, each put on the right way
    by the query of another episode of the same question, the shortest that was right."""
    episodes = list(_episodes(folder, questions))
    right: dict[str, str] = {}
    for question, line in sorted(episodes, key=lambda one: len(one[1].actions)):
        if (index := right_query(line)) is not None:
            query = one_line(line.actions[index].removeprefix("QUERY:"))
            right.setdefault(question.question_id, query)
    scripts = [
        script
        for question, line in episodes
        if (sql := right.get(question.question_id))
        and right_query(line) is None
        and (script := _put_right(source, question, line, sql))
    ]
    return _found(
        scripts, source, "failed query in an episode whose question was solved in another"
    )


_RECORDED = {
    RUN: recorded_scripts,
    CORRECTED: corrected_scripts,
    COMPLETED: completed_scripts,
    RECOVERED: recovered_scripts,
}


def right_query(line: EpisodeLine) -> int | None:
    """Return the place of the first query that returned the gold's rows, by its rewards; or None.

    The progress layer's sum is then its whole weight.
    """
    earned = 0.0
    for index, parts in enumerate(line.parts or ()):
        earned += parts.get("progress", 0.0)
        if earned > 0.999 * REWARD_WEIGHTS["progress"]:
            return index
    return None


def _put_right(source: str, question: Question, line: EpisodeLine, sql: str) -> Script | None:
    """Return an incorrect episode up to its first failed query, then DESCRIBE of the tables of
    `sql` that were not described, `sql` and the answer; None if no query failed, or `sql` did."""
    earned = enumerate(line.parts or ())
    failed = [index for index, parts in earned if "exec_ok" not in parts]
    first = next((index for index in failed if line.actions[index].startswith("QUERY:")), None)
    if first is None or line.outcome not in UNANSWERED:
        return None
    replayed = tuple(one_line(action) for action in line.actions[: first + 1])
    known = {action.lower() for action in replayed}
    missing = [
        f"DESCRIBE: {sql_name(table)}"
        for table in question.tables_involved
        if not known & {f"describe: {name}".lower() for name in (table, sql_name(table))}
    ]
    query = f"QUERY: {sql}"
    if query.lower() in known:
        return None
    errors = sum(index <= first for index in failed)
    actions = (*replayed, *missing, query, answer_of(question))
    return Script(source, *_place(question), actions, errors, first + 1)


def _episodes(
    folder: Path, questions: Iterable[Question]
) -> Iterator[tuple[Question, EpisodeLine]]:
    """Yield the recorded episodes of `questions`, each with its question."""
    asked = {one.question_id: one for one in questions}
    for line in episode_lines(RunFiles(folder).episodes):
        if line.question_id in asked:
            yield asked[line.question_id], line


def _found(scripts: Iterable[Script], source: str, what: str) -> list[Script]:
    """Return each script once. Raise `RunError` if there is none."""
    if not (found := list(dict.fromkeys(scripts))):
        raise RunError(
            f"{source} has no {what} of a training question of these data and difficulties: name a "
            "training run of this version, or evaluate with --split train"
        )
    return found


def one_line(sql: str) -> str:
    """Return a query on one line without comments, as a turn is one line; quoted text stays."""
    return _QUOTED_OR_SPACE.sub(lambda match: match[1] or " ", sql).strip().rstrip("; ")


def compared_tables(sql: str, tables: Collection[str]) -> list[str]:
    """Return those of `tables` whose columns `sql` compares with text, in the order of `tables`.

    A column without a table's name is taken for one of the nearest FROM before it.
    """
    mentions = list(_TABLE.finditer(sql))
    names = {name.lower(): found[1] for found in mentions for name in found.groups() if name}
    compared = set()
    for match in _COMPARED.finditer(sql):
        before = [found[1] for found in mentions if found.start() < match.start()]
        table = names.get(match[1].lower()) if match[1] else (before or [None])[-1]
        compared.add((table or "").lower())
    return [table for table in tables if table.lower() in compared]


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


def _place(question: Question) -> tuple[str, str]:
    return question.question_id, question.database_name
