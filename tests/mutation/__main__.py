"""Mutate modules and list the mutants that no test notices: `python -m tests.mutation [FILE ...]`.

`files.toml` has the modules and the tests of each; `equivalent.toml` the mutants that change no
behaviour, with the reason. mutmut works in `build/mutation/MODULE`: a run that is interrupted
continues there, mutants of functions that have changed are tested again, and so are earlier
survivors. Exits with 1 if a mutant survives.
"""

import argparse
import os
import subprocess
import sys
import tomllib
from collections import Counter
from contextlib import chdir
from pathlib import Path

from mutmut.mutation.diff_apply import get_diff_for_mutant

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
WORK = ROOT / "build" / "mutation"
CAUGHT = ("killed", "timeout")
SETTINGS = """\
[tool.mutmut]
source_paths = ["{package}"]
only_mutate = ["{file}"]
pytest_add_cli_args = ["-m", "not slow", "-p", "no:cacheprovider"]
pytest_add_cli_args_test_selection = {tests}
do_not_mutate_patterns = ['raise \\w+\\(', '\\blog\\.\\w+\\(', '\\bcast\\(']  # messages, types
use_git_change_detection = false

"""


class MutationError(Exception):
    """mutmut stopped: usually because a test fails without a mutation."""


def prepare(file: str, tests: list[str]) -> Path:
    """Return the folder in which mutmut mutates `file`; everything else in it is a link."""
    package = file.split("/")[0]
    folder = WORK / file.removesuffix(".py").replace("/", ".")
    mutants = folder / "mutants"
    mutants.mkdir(parents=True, exist_ok=True)
    for path in ROOT.iterdir():
        # mutmut copies the tests and the mutated package, so that tests import the mutants
        parent = folder if path.name in (package, "tests") else mutants
        if path.name[0] != "." and path.name not in ("build", "runs", "pyproject.toml"):
            link = parent / path.name
            if not link.is_symlink():
                link.symlink_to(path)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    options = project[project.index("[tool.pytest.ini_options]") :]
    settings = SETTINGS.format(package=package, file=file, tests=tests) + options
    (folder / "pyproject.toml").write_text(settings, encoding="utf-8")
    return folder


def mutmut(folder: Path, *arguments: str) -> str:
    """Run mutmut in `folder` and return what it prints."""
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise MutationError((done.stdout + done.stderr)[-3000:])
    return done.stdout


def statuses(folder: Path) -> dict[str, str]:
    lines = mutmut(folder, "results", "--all", "True").splitlines()
    return dict(line.strip().rsplit(": ", 1) for line in lines if ": " in line)


def change_of(folder: Path, file: str, mutant: str) -> tuple[str, str]:
    """Return the code of a mutant before and after, without the code around it."""
    with chdir(folder):
        lines = get_diff_for_mutant(mutant, path=file).splitlines()[3:]
    before, after = (
        "\n".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return before, after


def mutate(file: str, tests: list[str], children: int) -> bool:
    """Mutate one file, print its survivors and return whether there are none."""
    folder = prepare(file, tests)
    run = ("run", "--max-children", str(children))
    mutated = (folder / "mutants" / f"{file}.meta").exists()
    earlier = [name for name, status in statuses(folder).items() if status not in CAUGHT]
    mutmut(folder, *run)
    if mutated and (again := sorted(statuses(folder).keys() & set(earlier))):
        mutmut(folder, *run, *again)
    found = statuses(folder)
    table = tomllib.loads((HERE / "equivalent.toml").read_text(encoding="utf-8")).get(file, [])
    known = {(row["before"], row["after"]) for row in table}
    survivors = {
        name: change_of(folder, file, name)
        for name, status in found.items()
        if status not in CAUGHT
    }
    alive = {name: change for name, change in survivors.items() if change not in known}
    counts = Counter(found.values())
    print(
        f"{file}: {len(found)} mutants, {sum(counts[status] for status in CAUGHT)} caught, "
        f"{len(survivors) - len(alive)} equivalent, {len(alive)} survive"
    )
    for name, (before, after) in alive.items():
        print(f"\n  {name}: {found[name]}")
        print(*(f"    - {line}" for line in before.splitlines()), sep="\n")
        print(*(f"    + {line}" for line in after.splitlines()), sep="\n", flush=True)
    return not alive


def main() -> int:
    """Mutate the files of the command line, or all of `files.toml`."""
    files = tomllib.loads((HERE / "files.toml").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="a module of files.toml; default: all of them"
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        help="tests run at once; default: the number of CPU cores",
    )
    options = parser.parse_args()
    if unknown := set(options.files) - files.keys():
        parser.error(f"no tests known for {', '.join(sorted(unknown))}: add them to files.toml")
    clean = True
    for file in options.files or files:
        try:
            clean &= mutate(file, files[file], options.processes)
        except MutationError as error:
            print(f"{file}: mutmut stopped\n{error}", file=sys.stderr)
            clean = False
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
