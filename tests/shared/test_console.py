"""What the commands share on a terminal."""

import json
from pathlib import Path

import pytest
import typer

from shared.console import (
    TABLE_WIDTH,
    one_line_errors,
    print_line,
    progress_bar,
    table_console,
    write_json,
)
from shared.errors import DataError


def test_an_error_is_one_line_and_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (DataError("no data at [here]"), FileNotFoundError(2, "gone", "a.json")):
        with pytest.raises(typer.Exit) as end, one_line_errors():
            raise error
        assert end.value.exit_code == 1
        shown = capsys.readouterr().err
        assert shown == f"error: {error}\n"


def test_a_fault_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), one_line_errors():
        raise ZeroDivisionError


def test_tables_have_room_and_lines_stay_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    console = table_console()
    assert console.width == TABLE_WIDTH
    print_line(console, "[red]" + "x" * 300)
    assert capsys.readouterr().out == "[red]" + "x" * 300 + "\n"


def test_a_report_is_written_where_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(None, {})
    write_json(tmp_path / "a.json", {"name": "Zoë"})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"name": "Zoë"}
    with pytest.raises(typer.Exit) as end:
        write_json(tmp_path / "no" / "a.json", {}, status=2)
    assert end.value.exit_code == 2
    assert "error: can't write" in capsys.readouterr().err


def test_without_a_terminal_there_is_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("counting") as bar:
        bar(1, 2)
    assert capsys.readouterr() == ("", "")
