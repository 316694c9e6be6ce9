"""Files as people have them: each is read as a person reads it, or named with what to do."""

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from shared.dataset import database_path, load_splits
from tests.data.sources.importing import (
    imported,
    kept_questions,
    query,
    refused,
    run_import,
    write_questions,
)

FILES = Path(__file__).parent / "files"
# file -> its table's rows
PACKED: dict[str, list[tuple[Any, ...]]] = {
    "06-compressed/in/a.csv.gz": [(1, 2)],
    "06-compressed/inzip/data.zip": [(1, 2)],
    "06-compressed/inxlsx/book.xlsx": [(1, 2)],  # an archive of CSV with another's name
    "sheets/calc.ods": [(1, "x"), (2, "y")],
}
# the file's name, or what its form is called -> its content, its rows, perhaps what is said
FORMS: dict[str, tuple[Any, ...]] = {
    "stock.csv": (
        "sep=;\r\nItem;Pieces;Price\r\nbolt;40;1,25\r\nnut;15;0,40\r\nwasher;9;0,05\r\n",
        [("bolt", 40, 1.25), ("nut", 15, 0.4), ("washer", 9, 0.05)],
    ),
    "stock2.csv": ('"sep=\t"\nItem\tPieces\nbolt\t40\nnut\t15\n', [("bolt", 40), ("nut", 15)]),
    "stock3.csv": ("sep=,\na,b,c\n1,2,3\n4,5,6\n", [(1, 2, 3), (4, 5, 6)]),
    "blank.csv": ("\n\nTown,Visits\nAlmdorf,120\nBirkau,80\n", [("Almdorf", 120), ("Birkau", 80)]),
    "two header lines": (
        ",Temperature,,Humidity,\nDate,Min,Max,Min,Max\n2024-01-01,-3,4,60,90\n2024-01-02,-1,6,5,8\n",
        [("2024-01-01", -3, 4, 60, 90), ("2024-01-02", -1, 6, 5, 8)],
        "'Humidity Max' is called Humidity_Max",
    ),
    "a year is no total": (
        "company,year,revenue\nBP,2022,241.4\nShell,2022,381.3\nTotal,2022,263.3\n",
        [("BP", 2022, 241.4), ("Shell", 2022, 381.3), ("Total", 2022, 263.3)],
        "the last row may be one of totals: Total, 2022, 263.3",
    ),
    "chapters": (
        "chapter,pages\n1.1,9\n1.9,8\n1.10,7\n",
        [("1.1", 9), ("1.9", 8), ("1.10", 7)],
        "chapter stays text: '1.1' and '1.10' differ",
    ),
    "amounts": ("item,price\na,4.5\nb,4.50\nc,3.99\n", [("a", 4.5), ("b", 4.5), ("c", 3.99)]),
    "periods": (
        "id,from_date,to_date\n1,45292,45657\n2,45293,45299\n",
        [(1, "2024-01-01", "2024-12-31"), (2, "2024-01-02", "2024-01-08")],
    ),
    "a column without a name": (
        "name,,city\nAnn,pending,Paris\nBob,5,Rome\nCal,6,Oslo\n",
        [("Ann", "pending", "Paris"), ("Bob", "5", "Rome"), ("Cal", "6", "Oslo")],
    ),
    "short years": (
        "name,dob\nAnn,12/31/45\nBob,3/14/30\nCal,7/20/29\n",
        [("Ann", "1945-12-31"), ("Bob", "1930-03-14"), ("Cal", "2029-07-20")],
    ),
    "comment.csv": (
        "# exported 2026-01-01\n# by the office\nTown,Visits\nAlmdorf,120\n",
        [("Almdorf", 120)],
        "left out above the header: '# exported",
    ),
    "title_only.csv": (
        "Report of the office\nTown,Month,Visits\nAlmdorf,Jan,120\nBirkau,Jan,80\nCelm,Feb,95\n",
        [("Almdorf", "Jan", 120), ("Birkau", "Jan", 80), ("Celm", "Feb", 95)],
        "left out above the header: 'Report of the office'",
    ),
    "totals.csv": (
        "Town,Visits\nAlmdorf,120\nBirkau,80\nTotal,200\n",
        [("Almdorf", 120), ("Birkau", 80)],
        "a last row of totals is left out: Total, 200",
    ),
    "totals of a pivot table": (
        "Zeile;Summe von Betrag\nNord;1.200,50\nSüd;2.300,25\nGesamtergebnis EUR;3.500,75\n",
        [("Nord", 1200.5), ("Süd", 2300.25)],
        "a last row of totals is left out: Gesamtergebnis EUR",
    ),
    "no totals.csv": (
        "film,year\nAlien,1979\nMatrix,1999\nTotal Recall,1990\n",
        [("Alien", 1979), ("Matrix", 1999), ("Total Recall", 1990)],
    ),
    "codes.csv": ('id,code\n="001","=""A1"""\n="002",=""B\n', [("001", "A1"), ("002", '=""B')]),
    "visits.csv": (
        "Visits per town 2025,,,\n,,,\nTown,Month,Visits,Income\nAlmdorf,Jan,120,340.5\n"
        "Birkau,Jan,80,210.0\nCelm,Feb,95,188.25\nTotal,,295,738.75\n",
        [("Almdorf", "Jan", 120, 340.5), ("Birkau", "Jan", 80, 210.0), ("Celm", "Feb", 95, 188.25)],
        "a last row of totals is left out: Total, 295, 738.75",
    ),
    "delimiter-a.csv": (
        '"Name; place","Size, cm",Kind\n"Elm; north",12,tree\n"Oak; south",15,tree\n',
        [("Elm; north", 12, "tree"), ("Oak; south", 15, "tree")],
    ),
    "delimiter-b.csv": (
        "id;tags;cost\n1;\"['a', 'b', 'c']\";3,5\n2;\"['d']\";4,25\n",
        [(1, "['a', 'b', 'c']", 3.5), (2, "['d']", 4.25)],
    ),
    "delimiter-c.csv": (
        '"Field\none";"Field, two, x";"c"\n1;2;3\n4;5;6\n',
        [(1, 2, 3), (4, 5, 6)],
        "is called Field_one",
    ),
    "caret.csv": ("a^b^c\n1^2^3\n", [(1, 2, 3)]),
    "delimiter-d.csv": (
        "id;Name, Vorname, Titel;Ort\n1;Muster, Eva, Dr.;Almdorf\n2;Probe, Jan;Celm\n",
        [(1, "Muster, Eva, Dr.", "Almdorf"), (2, "Probe, Jan", "Celm")],
    ),
    "delimiter-e.csv": ("only\n1\n2\n", [(1,), (2,)]),
    "pipe.csv": ("a|b,c,d|e\n1|x,y|2\n", [(1, "x,y", 2)]),
    "tilde.txt": ("a~b\n1~2\n", [(1, 2)]),
    "serial.csv": (
        "id,day\n1,45657\n2,45659\n3,45458\n",
        [(1, "2024-12-31"), (2, "2025-01-02"), (3, "2024-06-15")],
        "serial.day is read as dates: 45458 is Excel's day 2024-06-15",
    ),
    "serial-b.csv": (
        "id,start_date\n1,45657.75\n2,45659.5\n",
        [(1, "2024-12-31 18:00:00"), (2, "2025-01-02 12:00:00")],
    ),
    "counts per day are no days": (
        "visitors per day,calls/day,day 1,date_key,spent_to_date,output per working day\n"
        "12000,30000,15500,20240101,25000,31500.5\n",
        [(12000, 30000, 15500, 20240101, 25000, 31500.5)],
    ),
    "booleans-b.jsonl": (
        '{"id":1,"paid":true}\n{"id":2,"paid":false}\n{"id":3,"paid":null}\n',
        [(1, 1), (2, 0), (3, None)],
    ),
    "inch.csv": (
        'id,item,price\n1,5" pipe,3\n2,"3"" hose",4\n3,"7" tube,5\n4,2" x 4" board,6\n',
        [(1, '5" pipe', 3), (2, '3" hose', 4), (3, '"7" tube', 5), (4, '2" x 4" board', 6)],
        "1 row with a cell that starts with a quote and doesn't end with one (line 4)",
    ),
    "inner_quotes.csv": (
        'id,item,price\n1,"7" tube",5\n2,nut,6\n3,"say "hi" now",7\n4,last,8\n',
        [(1, '7" tube', 5), (2, "nut", 6), (3, 'say "hi" now', 7), (4, "last", 8)],
        "(lines 2, 4), the quote is text",
    ),
    "backslash-m.csv": (
        'id,name,note\n1,"Foo \\"Bar\\" Co",ok\n2,"plain",\\N\n'
        '3,"a, b",fine\n4,"He said \\"x, y\\" twice",z\n',
        [
            (1, 'Foo "Bar" Co', "ok"),
            (2, "plain", None),
            (3, "a, b", "fine"),
            (4, 'He said "x, y" twice', "z"),
        ],
    ),
    "backslash-n.csv": (
        "id,score\n1,\\N\n2,5\n3,7\n",
        [(1, None), (2, 5), (3, 7)],
        "n.score has NULL for '\\\\N'",
    ),
    "open.csv": (
        'id,note\n1,ok\n2,"She said,\n3,fine\n4,last\n',
        [(1, "ok"), (2, '"She said'), (3, "fine"), (4, "last")],
        "(line 3), the quote is text",
    ),
    "tab.tsv": (
        'id\tnote\n1\tline\\nbreak\n2\t"quoted" start\n3\t5" pipe\n4\t"open quote\n5\tlast\n',
        [
            (1, "line\\nbreak"),
            (2, '"quoted" start'),
            (3, '5" pipe'),
            (4, '"open quote'),
            (5, "last"),
        ],
        "(lines 3, 5), the quote is text",
    ),
    "dup.jsonl": ('{"Id":1,"id":2}\n{"Id":3,"id":4}\n', [(1, 2), (3, 4)]),
    "pretty.jsonl": ('{\n "id": 1\n}\n{\n "id": 2\n}\n', [(1,), (2,)]),
    "arr.jsonl": ('[{"id":1},{"id":2}]\n', [(1,), (2,)]),
    "dates.jsonl": (
        '{"at":"2024-12-31T23:30:00Z","d":"2024-12-31","num":"0012"}\n{"at":"2025-01-01T00:00:00+02:00","d":"2025-01-01","num":"7"}\n',
        [("2024-12-31 23:30:00", "2024-12-31", "0012"), ("2024-12-31 22:00:00", "2025-01-01", "7")],
    ),
    "units": (
        "Town,Mass,Height\n,kg,m\nA,5,1.5\nB,6,2.5\n",
        [("A", 5, 1.5), ("B", 6, 2.5)],
        "1 row of units (line 2), left out: kg, m",
    ),
    "the header again": (
        "a,b\n1,x\na,b\n3,z\n",
        [(1, "x"), (3, "z")],
        "1 row like the header (line 3)",
    ),
    "no header": ("1,Ann,2.5\n2,Bob,3.5\n", [(1, "Ann", 2.5), (2, "Bob", 3.5)], "line 1 is a row"),
    "no header, and a unit": (
        "4.0K\t./a\n1.2M\t./b\n8.0K\t./c\n",
        [("4.0K", "./a"), ("1.2M", "./b"), ("8.0K", "./c")],
        "line 1 is a row",
    ),
    "numbers in names": (
        "State,2010 Census,5%\nOhio,11536504,3\nIowa,3046355,4\n",
        [("Ohio", 11536504, 3), ("Iowa", 3046355, 4)],
    ),
    "years, and one in percent, as names": ("Town,2023,2024,2024 %\nA,1,2,3\n", [("A", 1, 2, 3)]),
    "years as names": ("Town,2023,2024\nA,1,2\nB,3,4\n", [("A", 1, 2), ("B", 3, 4)]),
    "line breaks": (
        b'id,n\r\n1,a\n2,b\r3,c\r\n4,"x\ny"\r\n',
        [(1, "a"), (2, "b"), (3, "c"), (4, "x\ny")],
    ),
    "controls": ("id,n\n1,a\0b\n2,c\n\x1a", [(1, "ab"), (2, "c")], "1 control character left out"),
    "empty columns": ("a,,b,\n1,,2,\n,,,\n5,,6,\n", [(1, 2), (5, 6)]),
    "keys and values above": (
        "By,Ann\nDate,2026-01-01\n\nTown,Month,Visits\nA,Jan,5\nB,Feb,6\n",
        [("A", "Jan", 5), ("B", "Feb", 6)],
        "left out above the header: 'By Ann / Date 2026-01-01'",
    ),
    "a footnote": (
        "Town,Month,Visits\nA,Jan,5\nB,Feb,6\n\nSource: the office\n",
        [("A", "Jan", 5), ("B", "Feb", 6)],
        "1 row below the table (line 5), left out: 'Source: the office'",
    ),
    "a total and a source, as wide as the table": (
        "Town;Visits;\nA;1.200,5;\nB;6,0;\n;;\nTotal;1.206,5;\nSource: the office;;\n",
        [("A", 1200.5), ("B", 6.0)],
        "1 row below the table (line 6), left out: 'Source: the office'",
    ),
    "decimal commas decide the points": (
        "a;b;c\n2.649;405,02;x\n1.070;118,6;y\n804;58,0;z\n",
        [(2649, 405.02, "x"), (1070, 118.6, "y"), (804, 58.0, "z")],
        "t.a is read as numbers: '2.649' is 2649",
    ),
    "decimal points decide the commas": (
        'a,b\n"2,649",405.02\n804,118.6\n',
        [(2649, 405.02), (804, 118.6)],
        "is 2649",
    ),
    "points that nothing decides": ("a\n2.649\n804\n", [(2.649,), (804.0,)], "'2.649' is 2.649"),
    "two colons": ("a::b::c\n1::x y::2\n3::z: w::4\n", [(1, "x y", 2), (3, "z: w", 4)], ""),
    "colons": ("id:v:name\n1:2:x\n3:4:y\n", [(1, 2, "x"), (3, 4, "y")], ""),
    "times of one column": ("09:30\n10:15\n11:00\n", [("09:30",), ("10:15",), ("11:00",)], ""),
    "no total": (
        "Town,Visits\nA,5\nB,6\nTotal,90\n",
        [("A", 5), ("B", 6), ("Total", 90)],
        "the last row may be one of totals: Total, 90",
    ),
    "a cell over lines": (
        'id,addr,n\n1,"Main st, 5\nTown, X\nLand",1\n2,b,2\n',
        [(1, "Main st, 5\nTown, X\nLand", 1), (2, "b", 2)],
    ),
    "rows behind an open quote": (
        'id,note,n\n1,ok,1\n2,"She said,2\n3,fine,3\n4,x,4\n5,y",5\n',
        [(1, "ok", 1), (2, '"She said', 2), (3, "fine", 3), (4, "x", 4), (5, 'y"', 5)],
        "(line 3), the quote is text",
    ),
    "one column of prose": ("name\nSmith, J\nMiller, K\n", [("Smith, J",), ("Miller, K",)]),
    "single quotes": ("id;name\n1;'a; b'\n2;'c'\n", [(1, "a; b"), (2, "c")]),
    "spaces": ('a, b\n1, "x, y"\n2, "z"\n', [(1, "x, y"), (2, "z")]),
    "UTF-16 without a mark": ("id,n\n1,é\n".encode("utf-16-le"), [(1, "é")]),
    "Cyrillic": (
        "имя;город\nИван;Москва\nАнна;Казань\n".encode("cp1251"),
        [("Иван", "Москва"), ("Анна", "Казань")],
        "it is read as cp1251",
    ),
    "pounds": (
        "id,amount\n1,£7.00\n2,£14.00\n3,-£1.50\n4,£2\n5,£3\n".encode("cp1252"),
        [(1, 7.0), (2, 14.0), (3, -1.5), (4, 2.0), (5, 3.0)],
        "it is read as cp1252",
    ),
    "sections": (
        "id,law\n1,§ 1\n2,§ 2\n3,§ 3\n4,§ 4\n5,§ 5\n".encode("cp1252"),
        [(at, f"§ {at}") for at in range(1, 6)],
        "it is read as cp1252",
    ),
    "Russian of Unix": (
        "имя;город\nИван;Москва\nАнна;Казань\n".encode("koi8-r"),
        [("Иван", "Москва"), ("Анна", "Казань")],
        "it is read as koi8_r",
    ),
    "R's row names": (
        '"n","k"\n"Ann Lee",1,2\n"Bo",3,4\n',
        [("Ann Lee", 1, 2), ("Bo", 3, 4)],
        "its first column, of R's row names, is called row_name",
    ),
    "R's row names of one column": ('"n"\n"1",5\n"2",6\n', [(1, 5), (2, 6)], "row_name"),
    "a table of R": (
        '"n" "k"\n"a ""b" 1 "x, y"\n"c" NA "z"\n'.replace('""', '\\"'),
        [('a "b', 1, "x, y"), ("c", None, "z")],
        "row_name",
    ),
    "a title above two columns": ("Prices\nn,k\na,1\nb,2\n", [("a", 1), ("b", 2)], "'Prices'"),
    "what nobody sees": ("i\u200bd,n\n\u200b1,\ufeffa\u00a0\n", [(1, "a")]),
    "dates with gaps": (
        "d,n\n2024-01-05,1\nN/A,2\n",
        [("2024-01-05", 1), (None, 2)],
        "d has NULL for 'N/A'",
    ),
    "phones, and what is counted of them": (
        "phone,mobile,fax,Mobile users\n612 345 678,42.1,yes,1200\n911 222 333,55.9,no,950\n",
        [("612 345 678", 42.1, 1, 1200), ("911 222 333", 55.9, 0, 950)],
        "t.phone stays text: its name says that its numbers are codes",
    ),
    "versions": (
        "version,version_date\n3.8.10,31.12.2024\n3.10.11,01.12.2024\n",
        [("3.8.10", "2024-12-31"), ("3.10.11", "2024-12-01")],
        "t.version stays text: its name",
    ),
    "names of codes": ("phone\n5551234567\n5559876543\n", [("5551234567",), ("5559876543",)]),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(home: Path, table: str = "") -> list[tuple[Any, ...]]:
    path = next((home / "out").glob("databases/*/*.sqlite"))
    name = table or query(path, "SELECT name FROM sqlite_master")[0][0]
    return query(path, f'SELECT * FROM "{name}"')


@pytest.mark.parametrize("file", PACKED)
def test_a_packed_file_is_read_as_a_person_reads_it(home, file):
    imported("csv", FILES / file, "--out", "out")
    assert rows(home) == PACKED[file]


@pytest.mark.parametrize("form", FORMS)
def test_the_table_inside_a_file_is_found(home, form):
    content, expected, *said = FORMS[form]
    name = form if Path(form).suffix else "t.csv"
    (home / name).write_bytes(content.encode() if isinstance(content, str) else content)
    text = imported("csv", name, "--out", "out")
    assert rows(home) == expected
    assert all(line in text for line in said)


def test_a_workbook_has_a_table_per_sheet(home):
    text = imported("csv", FILES / "sheets/book.xlsx", "--out", "out")
    assert rows(home, "book_Sales") == [
        ("A", "2024-12-31", "2024-12-31 10:05:00", 1, 5.0, 3900),
        ("B", "2025-01-02", "2025-01-02 00:00:00", 0, 6.5, 108000),
    ]
    assert rows(home, "book_More_data") == [(1, "é")]
    assert "book.xlsx, Sales: a last row of totals is left out: Total, 11.5" in text


SHEET = """
<row r="1"><c r="A1" t="str"><v>Team</v></c><c r="B1" t="str"><v>Pay</v></c>
  <c r="C1" t="str"><v>Total</v></c></row>
<row r="2"><c r="A2" t="str"><v>Sales</v></c><c r="B2"><v>5</v></c><c r="C2"><f>B2*2</f></c></row>
<row r="3"><c r="A3"/><c r="B3"><v>6</v></c><c r="C3"><f>B3*2</f></c></row>
<row r="4"/>
<row r="5"><c r="A5" t="str"><v>Shop</v></c><c r="B5"><v>7</v></c><c r="C5"><f>B4*2</f></c></row>
<row r="6"><c r="A6" t="str"><v>Lab</v></c><c r="B6"/><c r="C6"><f>B4*2</f></c></row>
"""
OFFICE = "http://schemas.openxmlformats.org"
PARTS = {
    "[Content_Types].xml": f'<Types xmlns="{OFFICE}/package/2006/content-types"/>',
    "_rels/.rels": f'<Relationships xmlns="{OFFICE}/package/2006/relationships"><Relationship '
    f'Id="r1" Type="{OFFICE}/officeDocument/2006/relationships/officeDocument" '
    'Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'<workbook xmlns="{OFFICE}/spreadsheetml/2006/main" xmlns:r="{OFFICE}/'
    'officeDocument/2006/relationships"><sheets><sheet name="S" sheetId="1" r:id="r1"/></sheets>'
    "</workbook>",
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{OFFICE}/package/2006/relationships">'
    f'<Relationship Id="r1" Type="{OFFICE}/officeDocument/2006/relationships/worksheet" '
    'Target="worksheets/sheet1.xml"/></Relationships>',
    "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{OFFICE}/spreadsheetml/2006/main"><sheetData>'
    f'{SHEET}</sheetData><mergeCells><mergeCell ref="A2:A4"/>'
    '<mergeCell ref="B5:B6"/><mergeCell ref="F2:F3"/></mergeCells></worksheet>',
}


def test_merged_cells_and_formulas_without_results_are_read(home):
    with zipfile.ZipFile(home / "t.xlsx", "w") as book:
        for name, text in PARTS.items():
            book.writestr(name, text)
    text = imported("csv", "t.xlsx", "--out", "out")
    people = [("Sales", 5, None), ("Sales", 6, None), ("Shop", 7, None), ("Lab", None, None)]
    assert rows(home) == people
    assert "t.xlsx: each row of a merged cell gets its text: Sales\n" in text
    assert "t.Total has no value: if it has formulas, open and save the workbook in Excel" in text


def test_every_file_of_a_folder_is_read_or_named(home):
    shutil.copytree(FILES / "06-compressed/mixed", home / "mixed")
    shutil.copy(FILES / "15-dumps/in/shop_sqlite.sql", home / "mixed")
    (home / "mixed" / "more").mkdir()
    text = imported("csv", "mixed", "--out", "out")
    assert [rows(home, name) for name in "abd"] == [[(1, 2)], [(1, 2)], [(1,)]]
    for line in (
        "mixed/c.xlsx is not read: it is no workbook",
        "mixed/notes.txt is not read: it has no table",
        "shop_sqlite.sql is not read: use 'import sqlite'",
        "more is not read: it is a folder",
    ):
        assert line in text
    text = refused("csv", FILES / "15-dumps/in", "--out", "out2")
    assert "shop_pg.sql is not read: use 'import sqlite'" in text


def test_a_renamed_table_is_renamed_in_golds(home):
    (home / "2024 stalls.csv").write_text("id,n\n1,5\n2,6\n")
    asked = [
        ("How many?", 'SELECT count(*) FROM "2024 stalls"'),
        ("Sum?", "SELECT sum(n) FROM _2024_stalls"),
    ]
    write_questions(home / "q.jsonl", asked)
    imported("csv", "2024 stalls.csv", "--questions", "q.jsonl", "--out", "out")
    kept = kept_questions(home / "out")
    assert (kept["How many?"].gold_answer, kept["Sum?"].gold_answer) == (2, 11)


@pytest.mark.parametrize(
    ("dump", "message"),
    [
        ("shop_sqlite.sql", ""),
        (
            "shop_mysql.sql",
            "shop_mysql.sql is no dump of SQLite: load it into MySQL, and copy that",
        ),
        ("shop_pg.sql", "then import postgres postgresql:///shop"),
    ],
)
def test_dumps(home, dump, message):
    write_questions(home / "q.jsonl", [("How many?", "SELECT count(*) FROM item")])
    status, text = run_import(
        "sqlite", FILES / "15-dumps/in" / dump, "--questions", "q.jsonl", "--out", "out"
    )
    assert status == bool(message), text
    assert message in text
    if not message:
        assert rows(home) == [(1, "kettle")]


def test_a_dump_writes_no_other_file(home):
    (home / "d.sql").write_text("CREATE TABLE item (id);\nVACUUM INTO 'other.db';\n")
    write_questions(home / "q.jsonl", [("How many?", "SELECT count(*) FROM item")])
    status, text = run_import("sqlite", "d.sql", "--questions", "q.jsonl", "--out", "out")
    assert (status, sorted(path.name for path in home.iterdir())) == (1, ["d.sql", "q.jsonl"])
    assert "d.sql is no dump that SQLite reads" in text


@pytest.mark.parametrize(
    ("file", "kept", "said"),
    [
        *((name, 3, "") for name in (
            "alpaca.json", "cr.csv", "ctx.json", "fenced.jsonl", "heads.csv", "heads2.csv",
            "openai.jsonl", "pretty.jsonl", "sep.csv", "smart.csv", "trail.csv", "utf16.csv",
            "wrapped.json",
        )),
        ("cp1252.csv", 3, "note: cp1252.csv is no UTF-8: it is read as cp1252"),
        ("title.csv", 3, "note: title.csv: left out above the header: 'Our questions'"),
        ("nan.json", 1, ""),
        ("two.jsonl", 0, "failing: not one SELECT"),
        ("book.xlsx", 0, "book.xlsx is not read: it is no workbook"),
    ],
)  # fmt: skip
def test_question_files(home, file, kept, said):
    folder = FILES / "23-question-files"
    asked = ("--questions", folder / "in" / file, "--out", "out")
    status, text = run_import("csv", folder / "shop", *asked)
    assert status == (not kept), text
    assert said in text
    if kept:
        answers = {text: one.gold_answer for text, one in kept_questions(home / "out").items()}
        assert len(answers) == kept
        assert answers.get("What does the Müsli cost?", 4.0) == 4.0
        assert answers.get("How many products are there?", 3) == 3


TWO = "SELECT count(*) FROM product", "SELECT price FROM product WHERE name = 'Tee'"


@pytest.mark.parametrize(
    "rows",
    [
        {"data": [{"Natural Language Query": "n?", "Ground Truth SQL": sql} for sql in TWO]},
        [{"utterances": "n?", "expected_sql": sql} for sql in TWO],
        {str(at): {"question": "n?", "SQL": sql} for at, sql in enumerate(TWO)},
        [{"conversations": [{"from": "human", "value": "n?"},
                            {"from": "gpt", "value": f"So:\n```sql\n{sql}\n```"}]} for sql in TWO],
        [{"messages": [{"role": "user", "content": [{"type": "text", "text": "n?"}]},
                       {"role": "assistant", "content": sql}]} for sql in TWO],
        [{"prompt": [{"role": "user", "content": "n?"}],
          "completion": [{"role": "assistant", "content": sql}]} for sql in TWO],
    ],
)  # fmt: skip
def test_other_forms_of_question_files(home, rows):
    (home / "product.csv").write_text("id,name,price\n1,Tee,2.5\n2,Brot,3.0\n")
    (home / "q.json").write_text(json.dumps(rows))
    status, text = run_import("csv", "product.csv", "--questions", "q.json", "--out", "out")
    assert status == 0, text
    kept = [one for many in load_splits(home / "out").values() for one in many]
    assert {(one.question_text, one.gold_answer) for one in kept} == {("n?", 2), ("n?", 2.5)}


@pytest.mark.parametrize(
    ("folder", "without", "dropped"),
    [
        # literals in the file's form, and times of several forms
        ("07-dates", "none", {"q-0003", "q-0005", "q-0008", "q-0009"}),
        ("08-booleans", "b.jsonl", {"q-0003"}),  # paid = 'TRUE'
    ],
)
def test_golds_over_dates_and_booleans(home, folder, without, dropped):
    shutil.copytree(FILES / folder / "in", home / "in", ignore=shutil.ignore_patterns(without))
    status, text = run_import("csv", "in", "--questions", "in/q.jsonl", "--out", "out")
    assert status == 0, text
    report = json.loads((home / "out/import_report.json").read_text())
    assert {(row["question_id"], row["reason"]) for row in report["dropped"]} == {
        (one, "undecided") for one in dropped
    }
    kept = {one.gold_sql: one.gold_answer for one in kept_questions(home / "out").values()}
    right = {
        "SELECT max(day) FROM visit": "2025-03-09",
        "SELECT count(*) FROM visit WHERE strftime('%Y', day) = '2025'": 2,
        "SELECT count(*) FROM b WHERE paid": 3,
    }
    assert {sql: kept[sql] for sql in right if sql in kept} == {
        sql: answer for sql, answer in right.items() if ("visit" in sql) == (folder == "07-dates")
    }


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the zone is the process's")
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_times_of_parquet_are_utc_in_every_zone(home, zone, monkeypatch):
    monkeypatch.setenv("TZ", zone)
    source = FILES / "25-parquet-jsonl/in/zoo.parquet"
    imported("csv", source, "--out", "out")
    assert query(
        database_path(home / "out", "zoo"), "SELECT ts_utc, ts_ber FROM zoo WHERE id <> 2"
    ) == [
        ("2024-12-31 23:30:00", "2024-12-31 23:30:00"),
        ("2025-06-01 00:00:00", "2025-06-01 00:00:00"),
    ]


CELLS = {
    "ampm": "3:05 PM|11:00 AM|9:30 AM",
    "chf": "CHF 12.00|CHF 7.00|CHF 103.00",
    "dmon": "2-Jan-2025|31-Dec-2024|15-Jun-2024",
    "dur": "1:05:00|0:45:00|10:00:00",
    "err": "5|40|#DIV/0!",
    "kb": "900 KB|1 MB|2 GB",
    "lt": "<5|40|7",
    "mixed": "1,5|2.5|30",
    "month": "March|January|May",
    "my": "Jan 2025|Dec 2024|Jun 2024",
    "nbsp": "1\xa0234,56|12\u202f345,60|7,00",
    "null_": "5|40|(null)",
    "paren": "(1200.00)|2500.00|(30.50)",
    "pct": "5 %|40 %|n/a (2)",
    "plus": "+5.5|-3.0|+12.0",
    "range": "5-10|40-50|100+",
    "rank": "1st|2nd|10th",
    "size": "S|XL|M",
    "swiss": "1'234.50|12'000.00|7.10",
    "total": "5|40|see note",
    "trail": "5.00-|2000.00|1200.00-",
    "uminus": "−100.5|900.0|−12.5",
    "unit": "12 kg|7 kg|103 kg",
    "us": "1,234|12,345|230,111",
    "us2": "1,234|950|12,345",
    "ver": "1.9|1.10|1.2.3",
}
GOLDS = [
    *("SELECT max(v) FROM t_{}", "SELECT name FROM t_{} ORDER BY v DESC LIMIT 1"),
    *("SELECT sum(v) FROM t_{}", "SELECT avg(v) FROM t_{}"),
    *("SELECT count(*) FROM t_{} WHERE v > 10", "SELECT sum(CAST(v AS REAL)) FROM t_{}"),
]


def test_golds_over_dates_and_texts_are_right_or_undecided(home):
    """Of 156 golds that sort, sum and compare 26 columns, none is kept with a wrong answer."""
    (home / "in").mkdir()
    for name, column in CELLS.items():
        rows = (";".join(row) for row in zip("abc", column.split("|"), strict=True))
        (home / "in" / f"t_{name}.csv").write_text("\n".join(["name;v", *rows, ""]))
    golds = [(f"{name} {at}?", sql.format(name)) for name in CELLS for at, sql in enumerate(GOLDS)]
    asked = write_questions(home / "q.jsonl", golds)
    imported("csv", "in", "--questions", asked, "--out", "out")
    kept = {one.gold_sql: one.gold_answer for one in kept_questions(home / "out").values()}
    report = json.loads((home / "out/import_report.json").read_text())
    undecided = {row["question_id"] for row in report["dropped"] if row["reason"] == "undecided"}
    assert (len(kept), len(undecided)) == (90, 66)
    told = " ".join(report["notes"])
    for table in ("us", "us2", "mixed", "ver", "total", "pct", "kb", "lt"):
        assert f"t_{table}.v stays text: " in told
        assert f"SELECT sum(v) FROM t_{table}" not in kept or table in ("total", "pct")
    for table in ("range", "size", "month", "dur", "ampm", "dmon", "my"):
        assert f"SELECT sum(v) FROM t_{table}" not in kept
    right = {
        "max(v) FROM t_swiss": 12000.0, "sum(v) FROM t_paren": 1269.5,
        "max(v) FROM t_trail": 2000.0, "sum(v) FROM t_uminus": 787.0,
        "avg(v) FROM t_nbsp": 4529.053333333333, "max(v) FROM t_ampm": "15:05",
        "sum(v) FROM t_err": 45, "sum(v) FROM t_plus": 14.5, "max(v) FROM t_dmon": "2025-01-02",
        "sum(v) FROM t_chf": 122.0, "sum(v) FROM t_unit": 122, "max(v) FROM t_rank": 10,
    }  # fmt: skip
    assert {sql: kept[f"SELECT {sql}"] for sql in right} == right
