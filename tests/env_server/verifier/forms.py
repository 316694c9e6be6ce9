"""Golds with texts that are right, and others that are wrong though nearly the same."""

from typing import Any, NamedTuple

from env_server.verifier import Gold
from shared.models import AnswerType

ORDERED, UNORDERED = "SELECT a FROM t ORDER BY b", "SELECT a FROM t"
SINGERS = "How many singers came from cities with more than a million people?"


class Case(NamedTuple):
    """A gold answer, right texts and wrong ones, by the strict standard."""

    answer: Any
    right: list[str]
    wrong: list[str]
    ordered: bool = False
    asked: str = ""

    @property
    def gold(self) -> Gold:
        return gold_of(self.answer, ORDERED if self.ordered else UNORDERED, self.asked)


def gold_of(answer: Any, sql: str, question: str) -> Gold:
    """Return the gold of an answer's own type; None is a string's."""
    if isinstance(answer, list):
        kind: AnswerType = "table" if answer and isinstance(answer[0], list) else "list"
    else:
        by_type: dict[type, AnswerType] = {int: "integer", float: "float"}
        kind = by_type.get(type(answer), "string")
    return Gold.of(answer, kind, sql, question)


NAMES = ["Ann", "Bob", "Cy"]
PAIR = ["Ann", "Bob"]
YEARS = [1999, 2004, 2011]
LARGE = [1234, 5]
SMALL = [1, 234]
NULLS = [None, 4]
TITLES = ["Sense and Sensibility", "Emma", "Persuasion"]
PEOPLE = ["Poe, Edgar", "Doe, Jane"]
COUNTRIES = [["USA", 4], ["France", 3]]
PRICES = [["mug", 2.5], ["lamp", 12.3456]]
GAPS = [["mug", None], ["lamp", 1]]
NUMBERS = [[1, 2], [3, 4]]
ONE = [["Ann", 3]]
TIMES = [["12:30", 5], ["13:45", 6]]
FILMS = [["Alien: Covenant", 4], ["Up", 3]]

# The right ones are right by every standard.
FORMS = [
    # \boxed{}
    Case(42, ["\\boxed{42}", "$\\boxed{42}$", "\\boxed{42}.", "**\\boxed{42}**"],
         ["\\boxed{42} or \\boxed{43}", "\\boxed{42}\\boxed{42}", "\\boxed{43}", "\\boxed{42",
          "It is \\boxed{42}"]),
    Case(1234, ["Answer: \\boxed{1,234}"], []),
    Case("Ann", ["\\boxed{\\text{Ann}}"], ["\\boxed{\\text{Ann}} Bob"]),
    Case(NAMES, ["\\boxed{Ann, Bob, Cy}"], []),
    Case(12.3456, ["\\boxed{12.35}"], []),
    # one bullet
    Case(42, ["- 42", "* 42", "• 42 singers", "Answer: - 42"],
         ["- 42\n- 43", "42 -", "1. 42", "-- 42", "- 42 - 43"], asked=SINGERS),
    Case("Ann", ["- Ann", "* **Ann**"], []),
    Case(-5, ["- -5"], ["- 5"]),
    Case(NAMES, ["- Ann, Bob, Cy"], []),
    Case(ONE, ["- Ann | 3"], []),
    # dashes that are a minus
    Case(-5, ["\u22125", "\u20135", "\u20105", "\u20115", "\uff0d5", "\u2212$5", "\u20135 singers"],
         ["\u20145", "\u2013 5", "4\u20135", "\u2013\u20135"], asked=SINGERS),
    Case(-7.25, ["\u22127.25"], []),
    Case(0.0015, ["1.5e\u22123"], []),
    Case(5, [], ["\u20135"]),
    Case(4, [], ["4\u20135"]),
    # thousands
    Case(1234, ['"1,234"', "1,234"], []),
    Case(LARGE, ['"1,234", "5"', "1,234, 5", "1,234\n5", "1,234; 5", "1,234 and 5", '["1,234", 5]'],
         ["1,234,5"]),
    Case(SMALL, ["1,234", "1, 234"], ['"1,234"', "`1,234`"]),
    Case([1, 234, 5], [], ["1,234, 5", "1,234 and 5", "1,234; 5"]),
    Case([["a", 1, 234]], [], ["a, 1,234"]),
    Case([["a", 1234]], ["a, 1,234"], []),
    # A, B and C
    Case(NAMES,
         ["Ann, Bob and Cy", "Ann, Bob, and Cy", "Cy, Ann and Bob",
          "The answer is: Ann, Bob and Cy", "**Ann, Bob and Cy**"],
         ["Ann and Bob and Cy", "Ann, Bob or Cy", "Ann, Bob and others"]),
    Case(PAIR, ["- **Ann**\n- **Bob**", "1. **Ann**\n2. **Bob**", "**Ann**, **Bob**"],
         ["**Ann**, **Cy**", "**Ann"]),
    Case(PAIR, ["Ann and Bob"], ["Ann, Bob and Cy"]),
    Case(YEARS, ["1999, 2004 and 2011"], []),
    Case(TITLES,
         ["Sense and Sensibility, Emma and Persuasion",
          "Sense and Sensibility, Emma, Persuasion"],
         []),
    Case(NAMES, ["Ann, Bob and Cy"], ["Ann, Cy and Bob"], ordered=True),
    Case("Ann", [], ["Ann and Bob"]),
    Case(42, [], ["42 and 43"]),
    Case([1999, 2004], [], ["1999, 2004 and"]),
    # A; B; C
    Case(NAMES, ["Ann; Bob; Cy", "Ann;Bob;Cy", "```\nAnn; Bob; Cy\n```"],
         ["Ann; Bob", "Ann; Bob; Cy; Cy"]),
    Case(PEOPLE, ["Poe, Edgar; Doe, Jane"], ["Poe; Edgar; Doe; Jane"]),
    Case(YEARS, ["1999; 2004; 2011"], []),
    Case(NULLS, ["NULL; 4"], []),
    Case(42, [], ["42; 43"]),
    Case("Ann", [], ["Ann; Bob; Cy"]),
    # USA: 4
    Case(COUNTRIES,
         ["USA: 4\nFrance: 3", "France: 3\nusa: 4", "- USA: 4\n- France: 3",
          "1. USA: 4\n2. France: 3", "Answer:\nUSA: 4 singers\nFrance: 3 singers",
          "USA: 4, France: 3", "('USA', 4)\n('France', 3)", "(USA, 4)\n(France, 3)",
          "(USA, 4),\n(France, 3)", "- USA, 4\n- France, 3", "1. USA | 4\n2. France | 3",
          "- **USA**: 4\n- **France**: 3"],
         ["USA: 4\nFrance: 3\nUK: 1", "USA: 3\nFrance: 4", "4: USA\n3: France",
          "USA:4\nFrance:3", "USA: 4\nFrance"], asked=SINGERS),
    Case(PRICES, ["mug: 2.5\nlamp: 12.35"], []),
    Case(GAPS, ["mug: NULL\nlamp: 1"], []),
    Case(ONE, ["Ann: 3", "name: Ann\nsingers: 3", "- name: Ann\n- singers: 3"],
         ["singers: 3\nname: Ann", "name: Ann"]),
    Case(TIMES, ["12:30: 5\n13:45: 6"], []),
    Case(FILMS, [], ["Alien: Covenant: 4\nUp: 3"]),
    Case([["Ann", 3, 3]], [], ["Ann: 3"]),
    # TSV
    Case(COUNTRIES,
         ["USA\t4\nFrance\t3", "```tsv\nUSA\t4\nFrance\t3\n```", "country\tn\nUSA\t4\nFrance\t3"],
         ["4\tUSA\n3\tFrance", "USA\t4\nFrance\t3\t1"]),
    Case(GAPS, ["mug\tNULL\nlamp\t1", "mug\t\nlamp\t1"], []),
    Case(FILMS, ["Alien: Covenant\t4\nUp\t3"], []),
    Case(NUMBERS, ["1\t2\n3\t4"], ["1\t2\t3\t4"]),
    Case(42, [], ["42\t43"]),
    # what was read before
    Case(COUNTRIES,
         ["| country | n |\n|---|---|\n| USA | 4 |\n| France | 3 |",
          '{"country": ["USA", "France"], "n": [4, 3]}'],
         ["country | n\nUSA | 4\nFrance | 3"]),
    Case(12.3456, [], ["12"]),
    Case(42, [], ["42 million"]),
    # brackets per line, semicolons, bullets with commas, a quoted number with a full stop
    Case(COUNTRIES, ["USA (4)\nFrance (3)", "- USA (4)\n- France (3)", "USA, 4; France, 3"],
         ["USA (3)\nFrance (4)", "USA, 3; France, 4", "USA (4)\nFrance"]),
    Case(PAIR, ["- Ann,\n- Bob"], ["- Ann,\n- Bo"]),
    Case(42, ['"42".'], ['"42"..', '"43".']),
]  # fmt: skip
ANSWERS = [
    # integers
    Case(42,
         ["42", " 42 ", "42.0", "+42", "Answer: 42", "final answer: 42", "```\n42\n```",
          "```text\nAnswer: 42\n```", '"42"', "[42]", "[[42]]", "42.", "4.2e1",
          "The answer is: 42"],
         ["43", "42.1", "", "It is 42", "42 43", "42, 42", "4 2", "forty-two", "[42, 42]",
          "42%%", "NaN", "inf", "0x2A", "42abc", "1e999", "null", "٤٢"]),
    Case(1234567, ["1,234,567", "1234567"],
         ["1,23,4567", "1234,567", "1234568", "1.234567", "1_234_567"]),
    Case(-5, ["-5", "-5.0"], ["5", "- 5"]),
    Case(0, ["0", "0.0", "-0"], ["", "NULL", "0.1"]),
    Case(1, ["1", "1.0"], ["one", "-1"]),
    Case(9007199254740993, ["9007199254740993"], ["9007199254740992", "9007199254740994"]),
    # floats
    Case(12.3456, ["12.3456", "12.35", "12.3", "12.346", "12.34560", "12.3456000001", "1.235e1"],
         ["12", "12.34", "12.4", "12.3457", "12.30", "13", "123456"]),
    Case(58.125, ["58.125", "58.13", "58.12", "58.1"], ["58.2", "58", "60"]),
    Case(0.30000000000000004, ["0.3", "0.30", "0.300", "0.30000000000000004"],
         ["0.31", "0.4", "0"]),
    Case(24.5, ["24.5", "24.50", "24.5."], ["24", "25", "24.6", "2.45"]),
    Case(12.0, ["12", "12.0", "12.00"], ["12.1", "11.9", "13"]),
    Case(1234.567, ["1,234.567", "1234.57", "1235"], ["1230", "1234", "1.23e3"]),
    Case(0.00012345, ["0.00012345", "0.000123", "1.23e-4"], ["0.0001", "0.00012", "0", "0.000"]),
    Case(-7.25, ["-7.25"], ["7.25", "-7"]),
    Case(1e+300, ["1e300"], ["1e299", "inf"]),
    # strings
    Case("desk",
         ["desk", "Desk", " DESK ", '"desk"', "'desk'", "`desk`", "desk.", '"desk".',
          "Answer: desk", "```\ndesk\n```", "```desk```", '["desk"]', "“desk”"],
         ["desks", "the desk", "des", "", "desk, lamp", '["desk", "lamp"]', "de sk"]),
    Case("New  York", ["New York", "new york"], ["NewYork", "New\tYorks"]),
    Case("a\nb", ["a\\nb", "a\nb", "a b"], ["ab"]),
    Case("Inc.", ["Inc.", "inc.", '"Inc."'], ["Inc"]),
    Case("007", ["007", "'007'"], ["7", "7.0"]),
    Case("Zoë", ["Zoë", "Zoe\u0308", "ZOË"], ["Zoe"]),
    Case("Answer: yes", ["Answer: yes", "Answer: Answer: yes"], ["yes"]),
    Case("1992", ["1992", '"1992"'], ["1992.0", "1,992"]),
    Case("Smith, John", ["Smith, John", '"Smith, John"'], ["John Smith"]),
    # lists without order
    Case(["Ann", "Zoë", "Bob"],
         ['["Ann", "Zoë", "Bob"]', '["Bob","Ann","Zoë"]', "Ann\nZoë\nBob", "Ann, Bob, Zoë",
          "ann,bob,zoë", "- Ann\n- Bob\n- Zoë", "1. Ann\n2. Bob\n3. Zoë",
          '```json\n["Ann", "Zoë", "Bob"]\n```', "Answer: Ann, Zoë, Bob",
          '[["Ann"], ["Bob"], ["Zoë"]]', '"Ann", "Bob", "Zoë"', "Ann\n\nBob\nZoë\n",
          "Ann,\nBob,\nZoë", "| name |\n|---|\n| Ann |\n| Bob |\n| Zoë |"],
         ["Ann, Zoë", "Ann, Zoë, Bob, Bob", "Ann, Ann, Bob", "Ann Zoë Bob", "", "[]",
          '["Ann", "Zoë"]', '["Ann", ["Zoë", "Bob"]]', '["Ann", "Zoë", "Bob"']),
    # lists are bags
    Case(["a", "a", "b"], ["a, b, a"], ["a, b", "a, b, b"]),
    # lists of numbers and nulls
    Case([1234, 5], ["1,234\n5", "1234, 5", "[1234, 5.0]", "1,234, 5"], ["1, 234, 5", "[5, 5]"]),
    Case([None, 1], ["[null, 1]", "NULL\n1", "none, 1"], ["1", "[1, 1]", '["", 2]']),
    Case(["Smith, John", "Poe, E."], ["Smith, John\nPoe, E.", '"Smith, John", "Poe, E."'],
         ["Smith, John"]),
    Case([12.345678, 12.312345], ["12.3, 12.35", "12.35, 12.3", "12.3, 12.3"], ["12.35, 12.35"]),
    Case([12.34, 12.3], ["[12.3, 12.34]", "[12.34, 12.3]"], ["[12.3, 12.5]", "[12.34, 12.34]"]),
    # a null does not take an empty texts place
    Case([None, ""], ['["NULL", ""]', '["", "NULL"]', '[null, ""]', '["", null]'], ['["a", ""]']),
    # an empty line of a list is an empty text
    Case([2.5, "", "a"], ["2.5\n\na", '[2.5, "", "a"]'], ["2.5\na", "2.5, a"]),
    # tables
    Case([["mug", 10], ["lamp", 2.5], [None, 1]],
         ['[["mug", 10], ["lamp", 2.5], [null, 1]]',
          '[["lamp", 2.50], ["mug", 10.0], [null, 1]]', "mug | 10\nlamp | 2.5\nNULL | 1",
          "| mug | 10 |\n| lamp | 2.5 |\n| NULL | 1 |",
          "| what | n |\n|:---|---:|\n| mug | 10 |\n| lamp | 2.5 |\n| NULL | 1 |",
          "mug, 10\nlamp, 2.5\nNULL, 1",
          '[{"what": "mug", "n": 10}, {"what": "lamp", "n": 2.5}, {"what": null, "n": 1}]',
          "```\nMUG|10\nlamp|2.5\nnull|1\n```"],
         ["10 | mug\n2.5 | lamp\n1 | NULL", "mug | 10\nlamp | 2.5",
          "mug | 10\nlamp | 2.5\nNULL | 1\nNULL | 1", "mug | 10\nlamp | 2.5\nNULL | 2",
          "mug | lamp\n10 | 2.5\nNULL | 1", "", "[[]]", "mug 10\nlamp 2.5\nNULL 1"]),
    Case([["mug", 10], ["lamp", 2.5], [None, 1]], ['[["mug", 10], ["lamp", 2.5], [null, 1]]'],
         ['[["lamp", 2.50], ["mug", 10.0], [null, 1]]'], ordered=True),
    # an integer with a unit
    Case(42,
         ["42 kg", "42kg", "42 KG.", "42%", "42 %", "42 percent", "$42", "$ 42.00", "€42",
          "42 USD", "42 years", "42 km/h", "42 km²", "42 square metres", "+42 °C",
          "Answer: 42 kg", '"42 kg"'],
         ["43 kg", "42 furlongs", "42 or 43", "42 to 43", "42 kg 43 kg", "kg 42", "42 4",
          "42 million", "42 thousand", "42k", "42 dozen", "$42 %", "$$42", "42 bn",
          "42 kg or more", "about 42", "~42", "<50", "42-43", "42/43", "42 square kg", "0.42",
          "%42", "42 kg\n43 kg"]),
    Case(-5, ["-5 °C", "-$5", "$-5", "−5", "−5 °C"], ["5 °C", "$5", "--5"]),
    Case(1234567, ["1,234,567 people", "$1,234,567", "1\xa0234\xa0567", "1\u202f234\u202f567"],
         ["1 234 567", "1,234,56 kg", "1.234.567", "1'234'567"]),
    # a float with a unit
    Case(12.3456, ["12.35 kg", "$12.35", "12.3%"], ["12 kg", "12.4 kg", "0.123"]),
    Case(0.42, ["0.42", "0.42%"], ["42%", "42"]),
    # a word of the question is a unit
    Case(7, ["7 singers", "7 Singer", "7 cities", "7 city"],
         ["7 songs", "7 million", "7 more", "7 than", "8 singers", "7 million people"],
         asked=SINGERS),
    Case(1, ["1 car maker", "1 match", "1 movie", "1 class"], ["1 bus", "1 more match"],
         asked="How many car makers have matches, movies or classes?"),
    Case(7, [], ["7 singers"]),
    # units in lists and tables
    Case([5, 6], ["5 kg, 6 kg", "5 kg\n6 kg", '["5 kg", "6 kg"]'], ["5 kg 6 kg", "5, 7 kg"]),
    Case([["a", 5]], ["a | 5 kg", '["a", "$5"]'], ["a kg | 5", "a | 6 kg"]),
    # a texts unit is part of it
    Case("42 kg", ["42 kg"], ["42", "42 lb", "42kg"]),
    # booleans are one and zero
    Case(1, ["true", "True", "[true]", '"TRUE"'], ["false", "yes", "t"]),
    Case(0, ["false", "[false]"], ["true", "no", "null"]),
    Case("true", ["true", "[true]", "True"], ["1", "false"]),
    Case([["a", 1], ["b", 0]], ['[["a", true], ["b", false]]', "a | true\nb | false"],
         ["a | false\nb | true"]),
    Case(2, [], ["true", "[true]"]),
    # dates are iso on both sides or text
    Case("2021-03-01",
         ["2021-03-01", "2021-03-01 00:00:00", "2021-03-01T00:00", '"2021-03-01T00:00:00"'],
         ["2021-03-02", "2021-3-1", "1 March 2021", "03/01/2021", "20210301", "2021-03",
          "2021-03-01 00:00:01", "2021-03-01T00:00:00Z", "2021-W09-1"]),
    Case("2021-03-01 10:30:00",
         ["2021-03-01T10:30:00", "2021-03-01 10:30", "2021-03-01T10:30:00.000"],
         ["2021-03-01", "2021-03-01 10:30:01", "10:30"]),
    Case("2021-03-01T10:00:00Z", ["2021-03-01 11:00:00+01:00", "2021-03-01T10:00:00Z"],
         ["2021-03-01T10:00:00"]),
    Case("March 1, 2021", ["march 1, 2021"], ["2021-03-01"]),
    Case("2021-02-30", ["2021-02-30"], ["2021-03-02", "2021-02-30 00:00"]),
    # other scripts
    Case("Ολυμπία", ["ολυμπία", "ΟΛΥΜΠΊΑ", "«Ολυμπία»"], ["Ολυμπια"]),
    Case("東京", ["東京", '"東京"'], ["京東"]),
    Case("straße", ["STRASSE", "Straße"], ["strase"]),
    Case(["Zoë", "Ångström"], ["A\u030angstro\u0308m, Zoe\u0308"], ["Angstrom, Zoe"]),
    # fences bold and prefixes
    Case(42,
         ["**42**", "**Answer:** 42", "**Answer: 42**", "The final answer is: 42",
          "Answer:\n```\n42\n```", "```json\n42\n```", "```\n**42**\n```", "answer = 42"],
         ["**42** **43**", "**42", "Answer 42", "It's 42", "```42", "*42*"]),
    # lists in json python csv and markdown
    Case(["Ann", "O'Neil", "Bob"],
         ['[\'Ann\', "O\'Neil", \'Bob\']', "('Ann', 'O\\'Neil', 'Bob',)",
          '[(\'Ann\',), ("O\'Neil",), (\'Bob\',)]', '{"name": ["Ann", "O\'Neil", "Bob"]}',
          '[{"name": "Ann"}, {"name": "O\'Neil"}, {"name": "Bob"}]',
          "| Ann |\n| O'Neil |\n| Bob |", '["Ann"]\n["O\'Neil"]\n["Bob"]',
          '{"n": "Ann"}\n{"n": "O\'Neil"}\n{"n": "Bob"}', "Ann,O'Neil,Bob"],
         ["['Ann', 'Bob']", '{"a": "Ann", "b": "Bob"}', "| Ann | O'Neil | Bob |",
          "['Ann', 'Bob', 'Ann']",
          '[{"a": "Ann", "b": 1}, {"a": "O\'Neil", "b": 1}, {"a": "Bob", "b": 1}]']),
    # csv quotes
    Case(['say "hi", you', "b"], ['"say ""hi"", you",b', '"say ""hi"", you"\nb'],
         ["say hi, you, b"]),
    Case([["a\nb", 1], ["c,d", 2]], ['"a\nb",1\n"c,d",2', '"c,d", 2\n"a\nb", 1'],
         ["a\nb,1\nc,d,2"]),
    Case([["a", 1234]], ['a,"1,234"', "a, 1,234", "a | 1,234"], ["a,1,234"]),
    # tables in json and python
    Case([["mug", 10], ["lamp", None]],
         ["[('mug', 10), ('lamp', None)]", '{"what": ["mug", "lamp"], "n": [10, null]}',
          '["mug", 10]\n["lamp", null]', '{"rows": [["mug", 10], ["lamp", null]]}',
          '{"w": "mug", "n": 10}\n{"w": "lamp", "n": null}', "mug,10\nlamp,"],
         ['{"what": ["mug", "lamp"], "n": [null, 10]}', '{"what": ["mug", "lamp"]}',
          "[('mug', 10)]", "{}", "[{}]", "[('mug', 10, 1), ('lamp', None, 1)]",
          '{"what": ["mug", "lamp"], "n": [10]}']),
    Case([["mug", 10]], ['{"what": "mug", "n": 10}', "('mug', 10)"], ['{"n": 10, "what": "mug"}']),
    # bars within a markdown cell
    Case([["a|b", 1]], ["| a\\|b | 1 |", '["a|b", 1]'], ["| a|b | 1 |"]),
    Case([["a\\", 1]], ["a\\| 1", "a\\ | 1"], ["a | 1"]),
    # a header counts only above a rule
    Case([["mug", 10], ["lamp", 2]], ["w | n\n---|---\nmug | 10\nlamp | 2"],
         ["w | n\nmug | 10\nlamp | 2"]),
    # a gold of nothing but null
    Case(None, ["NULL", "none", "null", "[]", "[null]"], ["0", "Ann", "[0]"]),
    Case([None, None], ["[null, null]", "NULL\nNULL"], ["[]", "none", "[null]"]),
    Case([[None, None]], ["NULL | NULL", "[[null, null]]"], ["[]", "none"]),
    # a number in json python and markdown
    Case(42,
         ['{"answer": 42}', '{"count(*)": 42}', '[{"n": 42}]', '{"rows": [[42]]}', "(42,)",
          "[(42,)]", "| 42 |", "| n |\n|---|\n| 42 |", "{'n': 42}"],
         []),
    # as models write them
    Case("O'Hara", ["O’Hara", "O‘Hara", "OʼHara", "“O’Hara”", "Ｏ'Ｈａｒａ"],
         ["OHara", "O Hara", 'O"Hara']),
    Case("O’Hara", ["O'Hara", "o’hara"], ["O-Hara"]),
    Case('the "X"', ["the “X”"], ["the X", "the 'X'"]),
    Case("Smith-Jones", ["Smith\u2013Jones", "Smith\u2010Jones", "Smith\u2011Jones"],
         ["Smith Jones", "Smith−Jones"]),
    Case("New York", ["New\xa0York"], ["NewYork"]),
    Case(["O'Hara", "O’Hara"], ["O'Hara, O’Hara", "O’Hara\nO'Hara"],
         ["O'Hara, O'Hara", "Oʼhara, O'Hara"]),
    Case(12, ["１２", "１２．", "１２ kg"], ["２１", "１ ２", "１２３", "一二"]),
    Case([1, 2], ["１, ２", "[1, 2]", "n\n1\n2", "count(*)\n2\n1"],
         ["12", "１２", "3\n1\n2", "n 3\n1\n2"]),
    Case([["Rome", 2], ["Oslo", 3]],
         ["(Rome, 2), (Oslo, 3)", "(Oslo, 3); (Rome, 2)", "(Rome, 2) (Oslo, 3)",
          "(Rome, 2),(Oslo, 3)", "('Rome', 2), ('Oslo', 3)", "Rome: 2, Oslo: 3",
          "Rome: 2; Oslo: 3", "Rome (2), Oslo (3)", '{"Rome": 2, "Oslo": 3}',
          "city,n\nRome,2\nOslo,3", "city, n\nRome, 2\nOslo, 3",
          "```csv\ncity,n\nRome,2\nOslo,3\n```", "city\tn\nRome\t2\nOslo\t3",
          '"city","n"\n"Rome",2\n"Oslo",3',
          "| city | n |\n|---|---|\n| Rome | 2 |\n| Oslo | 3 |"],
         ["(Rome, 3), (Oslo, 2)", "(Rome, 2)", "(Rome, 2), (Oslo, 3), (Bonn, 1)",
          "(Rome, Oslo), (2, 3)", "(2, Rome), (3, Oslo)", "(Rome, 2), (Oslo, 3",
          "((Rome, 2), (Oslo, 3)", "(Rome, 2) or (Oslo, 3)", "not (Rome, 2), (Oslo, 3)",
          "Rome: 3, Oslo: 2", "Rome: 2", "Rome: 2, Oslo: 3, Bonn: 1", "Rome: 2: Oslo: 3",
          "2: Rome, 3: Oslo", "Rome (3), Oslo (2)", "Rome (2), Oslo", "Rome - 2, Oslo - 3",
          '{"Rome": 3, "Oslo": 2}', "Bonn,1\nRome,2\nOslo,3", "Bonn,about 1\nRome,2\nOslo,3",
          "Bonn,unknown\nRome,2\nOslo,3", "Bonn,\nRome,2\nOslo,3", "Bonn,NULL\nRome,2\nOslo,3",
          "city,n\nRome,3\nOslo,2", "city,n\nRome,2", "city,n\nBonn,1\nRome,2\nOslo,3",
          "Rome,2\nOslo,3\ncity,n", "city\nRome,2\nOslo,3",
          '[["Bonn", 1], ["Rome", 2], ["Oslo", 3]]', "city | n\nRome | 2\nOslo | 3"]),
    Case([["Rome", "IT"], ["Oslo", "NO"]], ["Rome,IT\nOslo,NO"], ["city,land\nRome,IT\nOslo,NO"]),
    Case(["Al", "O'Hara"], ["[Al, O’Hara]", "['Al', 'O'Hara']"],
         ["[Al, O, Hara]", "['Al', 'O', 'Hara']"]),
    Case(["Al", "Bo"], ["[Al, Bo]"],
         ["[Al Bo]", "[[Al, Bo]]", "[Al, Bo, Cy]", "[Al], [Bo]", "[Al, Bo"]),
    Case([["Rome", 2], ["Oslo", 3]], ["Rome | 2, Oslo | 3"],
         ["Rome | 3, Oslo | 2", "Rome | 2, Oslo", "Rome | 2 Oslo | 3"]),
    Case([["a: b", 2], ["c", 3]], ["a: b | 2\nc | 3"], ["a: b: 2, c: 3"]),
    Case([["a, b", 2], ["c", 3]], ['[["a, b", 2], ["c", 3]]'],
         ["(a, b, 2), (c, 3)", "a, b: 2, c: 3"]),
    Case([["x", 1234], ["y", 5]], ["x: 1,234; y: 5", "(x, 1,234), (y, 5)"], ["x: 1, 234; y: 5"]),
    # characters that nobody sees
    Case(42, ["\ufeff42", "4\u200b2", "\u2060 42\u00a0", "\u200e42\u200f", '"\u200b42"'],
         ["4\u00a02", "\u200b", "\u200b43"]),
    Case(2.75, ["\u200b2.75", "2.\u00ad75", "２.７５\u3000"], []),
    Case("Ann Lee", ["Ann\u00a0Lee\u00a0", "\ufeffAnn Lee", "An\u00adn\u200b Lee"],
         ["Ann\u200bLee"]),
    Case("a\u200bb", ["ab", "a\u200bb"], ["a b"]),
    Case("2024-01-05", ["\u200b2024-01-05", "２０２４-01-０５"], []),
    Case(PAIR, ['\ufeff["Ann", "Bob"]', "Ann,\u200b Bob\u200b", '["Ann",\u00a0"Bob"]'], []),
    Case(COUNTRIES, ['\u200b[["USA", ４], ["France", ３]]', "USA | 4\u200b\nFrance\u200b | 3"],
         ['[["USA", ３], ["France", ４]]']),
]  # fmt: skip
