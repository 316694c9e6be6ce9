"""What the commands share on a terminal."""

import io
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from rich.console import Console
from rich.table import Table

from shared.console import literal, one_line_errors, packages_needed, print_line, write_json
from shared.errors import DataError

ROOT = Path(__file__).parents[2]


def test_an_error_is_one_line_and_a_status(capsys):
    for error in (DataError("no data at [here]"), FileNotFoundError(2, "gone", "a.json")):
        with pytest.raises(SystemExit, match="1"), one_line_errors():
            raise error
        shown = capsys.readouterr().err
        assert shown == f"error: {error}\n"


def test_text_from_elsewhere_controls_neither_the_terminal_nor_the_layout(capsys):
    hostile = "a\x1b[2J\u202e [red]b[/]"
    harmless = "a\\x1b[2J\\u202e [red]b[/]"
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system=None, width=80)
    print_line(console, f"phase {hostile}\nall episodes verified")
    assert out.getvalue() == f"phase {harmless}\\nall episodes verified\n"
    table = Table("phase", "n")
    table.add_row(*literal(hostile, "1"))
    console.print(table)
    assert harmless in out.getvalue()
    with pytest.raises(SystemExit), one_line_errors():
        raise DataError(hostile)
    assert capsys.readouterr().err == f"error: {harmless}\n"


@pytest.mark.parametrize("errors", ["", ":strict"])
def test_what_a_console_cannot_show_is_escaped(errors):
    script = """if True:
        import sys
        from rich.table import Table
        from shared.console import failure, literal, print_line, table_console
        table = Table("name")
        table.add_row(*literal("Zo\u00eb \u65e5\u672c"))
        table_console().print(table)
        print_line(table_console(), "Zo\u00eb \u65e5\u672c")
        failure("Zo\u00eb \u65e5\u672c")
    """
    environment = os.environ | {"PYTHONIOENCODING": f"cp1252{errors}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True)
    assert done.returncode == 0
    shown = done.stdout.decode("cp1252")
    assert shown.count("Zo\u00eb \\u65e5\\u672c") == 2
    assert done.stderr.decode("cp1252") == "error: Zo\u00eb \\u65e5\\u672c\n"


@pytest.mark.parametrize(
    ("module", "program"),
    [
        ("resource", "import env_server.asgi"),
        ("resource", "import runpy; runpy.run_module('env_server')"),
        ("fcntl", "import trainer.__main__ as main; main.app(['train', '--preset', 'offline'])"),
    ],
)
def test_a_system_without_unix_modules_is_told_what_to_use(module, program):
    script = f"import sys; sys.modules[{module!r}] = None; {program}"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"error: .*Windows.*WSL.*Docker.*\n", done.stderr)


def test_a_report_is_written_where_it_is_asked_for(tmp_path, capsys):
    write_json(None, {})
    path = tmp_path / "new" / "a.json"
    write_json(path, {"name": "Zoë"})
    assert json.loads(path.read_text(encoding="utf-8")) == {"name": "Zoë"}
    with pytest.raises(typer.Exit) as end:
        write_json(path / "below-a-file.json", {})
    assert end.value.exit_code == 1
    assert "error: can't write" in capsys.readouterr().err


def test_a_missing_package_of_a_checkout_is_installed_from_it(capsys):
    with pytest.raises(SystemExit), packages_needed("server"):
        import_module("no_such_package.part")
    line = "error: this command needs no_such_package, which is not installed: "
    assert capsys.readouterr().err == f"{line}pip install -e '.[server]'\n"


@pytest.mark.parametrize("name", ["typer.no_such_part", "shared.no_such_part", "data", ""])
def test_a_fault_that_no_installation_removes_is_not_called_a_missing_package(name):
    with pytest.raises(ModuleNotFoundError), packages_needed("server"):
        raise ModuleNotFoundError("no module", name=name or None)
