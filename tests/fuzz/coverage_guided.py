"""Coverage-guided fuzzing with atheris: a program, since libFuzzer ends its process.

    python -m tests.fuzz.coverage_guided WORK_DIR -runs=2000 -seed=1   # options are libFuzzer's
    python -m tests.fuzz.coverage_guided WORK_DIR -max_total_time=600
    python -m tests.fuzz.coverage_guided WORK_DIR WORK_DIR/crash-...          # replay an input

An input is a list of actions' texts, separated by null characters; the lowest bit of the first byte
selects an episode or statements. The corpus starts with every hostile query. Coverage is that of
this project's Python: the authorizer, the checks of a statement, errors, rendering, actions,
rewards, the verifier. SQLite itself is not instrumented; its own project fuzzes it.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["env_server", "shared"]):
    from tests.fuzz.properties import World, check_episode, check_statement
    from tests.fuzz.strategies import COLUMNS, FORBIDDEN, STATEMENTS, TABLES, WORDS

SEPARATOR = "\0\0"
MAX_INPUT_BYTES = 4_000
ACTIONS = [
    "DESCRIBE: orders",
    "SAMPLE: orders",
    "QUERY: SELECT name FROM customers",
    'ANSWER: ["Ann", "Zoë"]',
    "ANSWER: Ann\nZoë",
    "ANSWER: | a | b |\n|---|---|\n| 1 | 2 |",
    "ANSWER: 1,234.50 km",
    "nonsense",
]


def write_corpus(directory: Path) -> Path:
    """Write the first inputs, one per file."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, sql in enumerate(STATEMENTS):
        (directory / f"statement-{number}").write_bytes(b"\0" + sql.encode()[: MAX_INPUT_BYTES - 1])
    for number in range(len(ACTIONS)):
        episode = SEPARATOR.join(ACTIONS[number:] + ACTIONS[:number])
        (directory / f"episode-{number}").write_bytes(b"\1" + episode.encode())
    return directory


def write_dictionary(path: Path) -> Path:
    """Write the words that libFuzzer inserts."""
    words = dict.fromkeys(
        [*WORDS, *TABLES, *COLUMNS, *FORBIDDEN, "QUERY: ", "DESCRIBE: ", "SAMPLE: ", "ANSWER: "]
    )
    lines = ("".join(f"\\x{byte:02x}" for byte in word.encode()) for word in words)
    path.write_text("".join(f'"{line}"\n' for line in lines))
    return path


def main() -> None:
    work = Path(sys.argv[1])
    world = World(work / "data")

    def one_input(data: bytes) -> None:
        texts = data[1:].decode(errors="replace").split(SEPARATOR)
        if data[:1] and data[0] & 1:
            check_episode(world, texts[:8])
        else:
            for sql in texts[:3]:
                check_statement(world, sql)
        assert Path(world.path).stat().st_size == len(world.bytes)

    options = sys.argv[2:]
    if not any(not option.startswith("-") for option in options):  # no input of the caller's
        corpus = write_corpus(work / "corpus")
        options = [f"-dict={write_dictionary(work / 'dictionary')}", *options, str(corpus)]
    prefix = f"-artifact_prefix={work}/"
    fixed = [f"-max_len={MAX_INPUT_BYTES}", "-timeout=30", "-rss_limit_mb=4096", prefix]
    atheris.Setup([sys.argv[0], *fixed, *options], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
