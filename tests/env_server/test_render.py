"""The text that an agent reads. Models are trained on it: a change changes what they can read."""

from hypothesis import given
from hypothesis import strategies as st

from env_server.render import (
    MAX_RESULT_BYTES,
    render_cell,
    render_columns,
    render_rows,
    render_schema,
    render_table,
)
from env_server.sql import SqlResult
from shared.answers.cells import plain


def test_rows():
    rows = [("Ann", 31, None), ("Zoë\nB", 2.0, b"abc")]
    text = "name | age | note\nAnn | 31 | NULL\nZoë\\nB | 2.0 | <blob 3 bytes>"
    names = ["name", "age", "note"]
    assert render_rows(SqlResult(names, rows), 2) == text
    more = "\n(first 2 rows; there are more)"
    assert render_rows(SqlResult(names, rows * 2), 2) == text + more
    assert render_rows(SqlResult(names, rows, truncated=True), 9) == text + more


def test_cells():
    cells = (None, 0, -5, 12.0, 0.1 + 0.2, 1e300, float("inf"), "", "a|b")
    texts = ["NULL", "0", "-5", "12.0", "0.30000000000000004", "1e+300", "inf", "", "a|b"]
    assert [render_cell(cell) for cell in cells] == texts
    assert render_cell("x" * 200) == "x" * 200
    assert render_cell("x" * 201) == "x" * 199 + "…"
    assert render_cell("a\r\nb") == "a\\r\\nb"


def test_what_could_end_a_line_or_reorder_it_is_escaped():
    hidden = "".join(map(chr, [*range(32), *range(127, 160), 0x61C, 0x200E, 0x200F]))
    hidden += "".join(map(chr, [*range(0x2028, 0x202F), *range(0x2066, 0x206A)]))
    shown = "".join(render_cell(character) for character in hidden)
    assert shown.isprintable()
    assert render_cell("a\x1b[2K\x00b\x85c\u2028d\u2029e\tf") == (
        r"a\x1b[2K\x00b\x85c\u2028d\u2029e\tf"
    )
    assert render_cell("a\u202eb\u2066c\u200f") == r"a\u202eb\u2066c\u200f"
    assert render_cell("Zoë 日本 \N{NO-BREAK SPACE}\N{PILE OF POO}") == (
        "Zoë 日本 \N{NO-BREAK SPACE}\N{PILE OF POO}"
    )
    name = "o\u2028r\x1bd\n"
    rows = [(name, name, 1, name)]
    result = SqlResult(["column", "type", "is_key", "references"], rows, row_count=1)
    for text in (
        render_table(name, result, {}),
        render_columns(name, result),
        render_schema([name], []),
    ):
        assert text.replace("\n", "").isprintable()
    assert len(render_table(name, result, {}).splitlines()) == 2
    assert len(render_rows(SqlResult([name], [(name,)]), 20).splitlines()) == 2


@given(st.text(alphabet="ab \t\n\r\x00\x1b\x85\u2028\u2029\u061c\u200f\u202e\u2066", max_size=12))
def test_an_answer_copied_from_a_result_is_its_cell(text):
    assert plain(render_cell(text)) == plain(text)


def test_a_long_result_is_cut_at_a_line_with_a_note():
    text = render_rows(SqlResult(["n", "m"], [(i, "ü" * 150) for i in range(20)]), 20)
    lines = text.split("\n")
    assert len(text.encode()) <= MAX_RESULT_BYTES
    assert lines[-1] == "(cut: the result is too long)"
    assert lines[1:-1] == [f"{i} | {'ü' * 150}" for i in range(len(lines) - 2)]
    assert len(lines) > 10
