"""Columns as people write them: what is read as numbers, dates, times and booleans, and what stays
text."""

import pytest

from data.cell_formats import column_of

READ = [
    # thousands and decimals of many countries
    ("1,234|950|1,234,567", "INTEGER", [1234, 950, 1234567]),
    ("1.234,50|7,00", "REAL", [1234.5, 7.0]),
    ("1\u00a0234,56|12\u202f345,60|7,00", "REAL", [1234.56, 12345.6, 7.0]),
    ("1'234.50|12’000.00|7.10", "REAL", [1234.5, 12000.0, 7.1]),
    ("12,34,567.50|1,00,000", "REAL", [1234567.5, 100000.0]),
    ("2,50|-10,75|NA", "REAL", [2.5, -10.75, None]),
    ("1,234|0,250", "REAL", [1.234, 0.25]),
    ("1.234.567|5", "INTEGER", [1234567, 5]),
    ("1,234.50|5", "REAL", [1234.5, 5.0]),
    ("１２|３", "INTEGER", [12, 3]),
    ("٣٫٥|١٢", "REAL", [3.5, 12.0]),
    # signs, money, units
    ("(1200.00)|2500.00|(30.50)", "REAL", [-1200.0, 2500.0, -30.5]),
    ("5.00-|2000.00", "REAL", [-5.0, 2000.0]),
    ("\u2212100.5|900", "REAL", [-100.5, 900.0]),
    ("+5.5|-3.0|+12.0", "REAL", [5.5, -3.0, 12.0]),
    ("CHF 12.00|CHF 7.00", "REAL", [12.0, 7.0]),
    ("5 USD|7.50 USD", "REAL", [5.0, 7.5]),
    ("US$ 5|US$ 12", "INTEGER", [5, 12]),
    ("10 %|5%", "INTEGER", [10, 5]),
    ("12 %|0.5%|-", "REAL", [12.0, 0.5, None]),
    ("$5|-$1,234.50|", "REAL", [5.0, -1234.5, None]),
    ("1.234,50 €|3 €", "REAL", [1234.5, 3.0]),
    ("12 kg|7 kg|103 kg", "INTEGER", [12, 7, 103]),
    ("5 items|1 item", "INTEGER", [5, 1]),
    ("1st|2nd|10th", "INTEGER", [1, 2, 10]),
    ("99,-|149,50|1.299,-", "REAL", [99.0, 149.5, 1299.0]),
    ("Rs. 500/-|Rs. 1,12,000/-", "INTEGER", [500, 112000]),
    ("$(1,234.00)|$5.00", "REAL", [-1234.0, 5.0]),
    ("R1 234.56|R99.00", "REAL", [1234.56, 99.0]),
    ("5 €/m²|7 €/m²", "INTEGER", [5, 7]),
    ("5個|12個", "INTEGER", [5, 12]),
    ("5pcs|12pcs|1.5pcs", "REAL", [5.0, 12.0, 1.5]),
    ("5月|12月", "INTEGER", [5, 12]),
    # what is missing decides nothing, and what nobody sees
    ("5|#WERT!|#NV|7", "INTEGER", [5, None, None, 7]),
    ("0000-00-00|31.12.2024", "TEXT", [None, "2024-12-31"]),
    ("5|(null)|#DIV/0!|N/A|—|40", "INTEGER", [5, None, None, None, None, 40]),
    ("\u200b5|\ufeff1,234,567|6\u00a0", "INTEGER", [5, 1234567, 6]),
    # dates in one order, months by name, zones in UTC
    ("31.12.2024|02.01.2025", "TEXT", ["2024-12-31", "2025-01-02"]),
    ("12/31/2024|1/2/2025", "TEXT", ["2024-12-31", "2025-01-02"]),
    ("31/12/24|01/02/23", "TEXT", ["2024-12-31", "2023-02-01"]),
    ("2-Jan-2025|31-Dec-2024", "TEXT", ["2025-01-02", "2024-12-31"]),
    ("Dec 31, 2024|January 5, 2023", "TEXT", ["2024-12-31", "2023-01-05"]),
    ("15. März 2024|3. Mai 2023", "TEXT", ["2024-03-15", "2023-05-03"]),
    ("3 janvier 2025|14 févr. 2025", "TEXT", ["2025-01-03", "2025-02-14"]),
    ("2024年12月31日|2025年1月2日", "TEXT", ["2024-12-31", "2025-01-02"]),
    ("Jan 2025|Dec 2024", "TEXT", ["2025-01", "2024-12"]),
    ("12/31/2024 11:30 PM|1/2/2025 1:05 AM", "TEXT",
     ["2024-12-31 23:30:00", "2025-01-02 01:05:00"]),
    ("2024-12-31T23:30:00Z|2025-01-01T00:10:00+02:00", "TEXT",
     ["2024-12-31 23:30:00", "2024-12-31 22:10:00"]),
    ("Mon, 02 Jan 2025 10:00:00 +0000|Tue, 03 Jan 2025 10:00:00 +0100", "TEXT",
     ["2025-01-02 10:00:00", "2025-01-03 09:00:00"]),
    ("2024年12月|2025年1月", "TEXT", ["2024-12", "2025-01"]),
    ("2024년 12월 31일|2025년 1월 2일", "TEXT", ["2024-12-31", "2025-01-02"]),
    ("2024年12月31日 10時5分|2025年1月2日 3時15分", "TEXT",
     ["2024-12-31 10:05:00", "2025-01-02 03:15:00"]),
    ("2024. 12. 31.|2025. 1. 2.", "TEXT", ["2024-12-31", "2025-01-02"]),
    ("31.12.2024.|02.01.2025.", "TEXT", ["2024-12-31", "2025-01-02"]),
    ("1er mai 2024|5 mai 2024", "TEXT", ["2024-05-01", "2024-05-05"]),
    ("5 мая 2024 г.|12 июня 2023 г.", "TEXT", ["2024-05-05", "2023-06-12"]),
    ("May 1st, 2024 at 5:00 PM|May 2nd, 2024 at 6:15 AM", "TEXT",
     ["2024-05-01 17:00:00", "2024-05-02 06:15:00"]),
    ("Tue Dec 31 23:59:59 +0100 2024|Wed Jan 1 00:00:00 +0000 2025", "TEXT",
     ["2024-12-31 22:59:59", "2025-01-01 00:00:00"]),
    ("2024-12-31 23:00:00 EST|2025-01-01 00:00:00 EST", "TEXT",
     ["2025-01-01 04:00:00", "2025-01-01 05:00:00"]),
    ("31.12.2024 14:05 Uhr|02.01.2025 9:00 Uhr", "TEXT",
     ["2024-12-31 14:05:00", "2025-01-02 09:00:00"]),
    ("Jan-24|Feb-95", "TEXT", ["2024-01", "1995-02"]),
    # times of day, and durations
    ("14h30|9h05", "TEXT", ["14:30", "09:05"]),
    ("3.05 pm|11.00 am", "TEXT", ["15:05", "11:00"]),
    ("下午3:05|上午11:00", "TEXT", ["15:05", "11:00"]),
    ("00:01:02,500|00:10:00,000", "TEXT", ["00:01:02.5", "00:10:00"]),
    ("2 days 03:04:05|0 days 00:00:10", "INTEGER", [183845, 10]),
    ("1:23.456|0:59.8", "REAL", [83.456, 59.8]),
    ("3:05 PM|11:00 AM|12:00 am", "TEXT", ["15:05", "11:00", "00:00"]),
    ("9:30|10:15", "TEXT", ["09:30", "10:15"]),
    ("1:05:00|30:45:00", "INTEGER", [3900, 110700]),
    ("1h 5m|45 min|2 h", "INTEGER", [3900, 2700, 7200]),
    ("PT5M|PT1H30M", "INTEGER", [300, 5400]),
    # booleans
    ("TRUE|FALSE|true", "INTEGER", [1, 0, 1]),
    ("yes|No", "INTEGER", [1, 0]),
    ("t|f|t", "INTEGER", [1, 0, 1]),
    ("WAHR|FALSCH", "INTEGER", [1, 0]),
    ("ИСТИНА|ЛОЖЬ", "INTEGER", [1, 0]),
    ("はい|いいえ", "INTEGER", [1, 0]),
]  # fmt: skip
TEXT = [  # cells, and what is told
    ("5|40|see note|later", ""),  # half of them
    ("5|40|7|see note|later", "3 of 5 cells are numbers in one spelling, and not 'see note' and"),
    ("1,5|2.5|30", "2 of 3 cells are numbers in one spelling, and not '2.5'"),
    ("900 KB|1 MB|2 GB", "1 of 3 cells are numbers in one spelling, and not '1 MB' and not '2 GB'"),
    ("€5|$6|€7", "and not '$6'"),
    ("$2.00|$3.00|$2.00?", "2 of 3 cells are numbers in one spelling, and not '$2.00?'"),
    ("5 %|6|7 %", "2 of 3 cells are numbers in one spelling, and not '6'"),
    ("1,234|5", "'1,234' can be 1.234 and 1234"),
    ("1,234,567|2,5|3,5", "and not '1,234,567'"),
    (f"{'9' * 400},5|1,5", ""),  # infinite as a number
    ("1,234|950|12,345", "'1,234' can be 1.234 and 1234"),
    ("1/2/2024|3/4/2025", "'1/2/2024' can be 2024-02-01 and 2024-01-02"),
    ("31.12.2024|1.1.2025|soon", "2 of 3 cells are dates in one spelling, and not 'soon'"),
    ("2024-12-31T23:30:00Z|2025-01-01 00:00:00|2025-01-01 00:00:01", "and not '2024-12-31T23:30"),
    ("12:30|45:10|3:20", "2 of 3 cells are times in one spelling, and not '45:10'"),
    ("Jan-24|Feb-12", "'Jan-24' can be 01-24 and 2024-01"),
    ("Jan24|Feb 3", "'Jan24' has no year"),
    ("24-Jan|3-Feb", "'24-Jan' has no year"),
    ("TRUE|FALSE|maybe", "2 of 3 cells are booleans in one spelling, and not 'maybe'"),
    ("(1)|(2)", "a negative number or a note's"),
    # codes, and ISO's form, which needs no reading
    ("01234|12345|23456", ""),
    ("2,50|007", ""),
    ("+49151123456|+49151123457", ""),
    ("1.2.3|1.10.0", ""),
    ("978-3-16|978-0-00", ""),
    ("A1|A2", ""),
    ("R101|R102", ""),
    ("12 Oak Street|7 Elm Road", ""),
    ("t|t", ""),
    ("2024-12-31|2025-01-01", ""),
    ("2024-12-31T23:30:00Z|2025-01-01T00:00:00Z", ""),
]


@pytest.mark.parametrize(("cells", "kind", "values"), READ)
def test_a_column_of_one_spelling_is_read(cells, kind, values):
    column = column_of(lambda: [(cell, 1) for cell in cells.split("|")])
    found = [column.read(cell) for cell in cells.split("|")]
    assert (column.kind, found) == (kind, values)
    assert list(map(type, found)) == list(map(type, values))


@pytest.mark.parametrize(("cells", "note"), TEXT)
def test_other_columns_stay_text_and_are_told(cells, note):
    column = column_of(lambda: [(cell, 1) for cell in cells.split("|")])
    assert (column.kind, column.spelling) == ("TEXT", None)
    assert note in column.note if note else not column.note


def test_cells_count_as_often_as_they_are_there():
    column = column_of(lambda: [("n/a (2)", 2), ("5 %", 1), ("7 %", 2)])
    assert "3 of 5 cells" in column.note
