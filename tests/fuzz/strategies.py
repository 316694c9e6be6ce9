"""Statements for hypothesis: from a grammar of agents' SQL, mutated hostile ones, and any text."""

from hypothesis import strategies as st

from env_server.sql.limits import FUNCTIONS
from shared.sqltext import quote_text
from tests.conformance.corpus import load

TABLES = ["customers", "products", "orders", "t", "sqlite_master"]
TABLES += ["carray", "no_such", "main.orders", "x"]
COLUMNS = ["name", "city", "price", "quantity", "note", "a", "b", "*", "rowid", "customer_id"]
COLUMNS += ["no_such", "i", '"it"']
OWN_COLUMNS = {
    "customers": ["customer_id", "name", "city", "joined_on"],
    "products": ["product_id", "title", "price"],
    "orders": ["order_id", "customer_id", "quantity", "note"],
    "t": ["a", "b", "rowid"],
}
FORBIDDEN = ["random", "randomblob", "load_extension", "sqlite_version"]
FORBIDDEN += ["unhex", "zeroblob", "readfile", "changes"]
WORDS = [
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "UNION",
    "UNION ALL", "EXCEPT", "INTERSECT", "WITH", "RECURSIVE", "AS", "MATERIALIZED", "VALUES", "JOIN",
    "LEFT JOIN", "NATURAL JOIN", "USING", "ON", "DISTINCT", "CASE", "WHEN", "THEN", "ELSE", "END",
    "LIKE", "GLOB", "IN", "EXISTS", "BETWEEN", "IS", "NOT", "CAST", "COLLATE", "NOCASE", "OVER",
    "PARTITION BY", "ROWS", "FILTER", "INDEXED BY", "ATTACH", "PRAGMA", "VACUUM", "INSERT INTO",
    "DELETE FROM", "CREATE TEMP VIEW", "EXPLAIN", "RETURNING", ";", "--", "/*", "*/", "(", ")", ",",
    ".", "+", "-", "||", "=", "<", "'", '"', "`", "[", "]", "?", "1", "0", "9e999", "x'00'", "NULL",
    "\0", "\n",
]  # fmt: skip
STATEMENTS = [query.statement("orders", "order_id", "/tmp/x") for query in load()]

literals = st.one_of(
    st.integers(-(2**63), 2**63).map(str),
    st.floats().map(repr),
    st.text(max_size=8).map(quote_text),
    st.binary(max_size=4).map(lambda data: f"x'{data.hex()}'"),
    st.sampled_from(["NULL", "CURRENT_TIMESTAMP", "''", "'now'", "'%'", "'$[0]'", "'[1,2]'"]),
)
names = st.sampled_from(COLUMNS)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    functions = st.sampled_from([name for name in FUNCTIONS if name[0].isalpha()] + FORBIDDEN)
    operators = st.sampled_from(
        ["+", "-", "*", "/", "%", "||", "=", "<", ">=", "<>", "AND", "OR", "LIKE", "GLOB", "IS"]
    )
    lists = st.lists(inner, max_size=3).map(", ".join)

    def filled(text: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.tuples(*parts).map(lambda drawn: text.format(*drawn))

    return st.one_of(
        filled("({} {} {})", inner, operators, inner),
        filled("{}({})", functions, lists),
        filled("CAST({} AS TEXT)", inner),
        filled("CASE WHEN {0} THEN {1} ELSE {0} END", inner, inner),
        filled("{} IN ({})", inner, lists),
        filled("sum({}) OVER (ORDER BY 1)", inner),
        filled("(SELECT {} FROM {})", inner, st.sampled_from(TABLES)),
    )


expressions = st.recursive(st.one_of(literals, names), _larger, max_leaves=8)


@st.composite
def lookups(draw: st.DrawFn) -> str:
    """A SELECT that compiles: one table and its own columns."""
    table, columns = draw(st.sampled_from(sorted(OWN_COLUMNS.items())))
    own = st.sampled_from(columns)
    columns = draw(
        st.lists(
            st.one_of(own, own.map("count(DISTINCT {})".format), own.map("max({})".format)),
            min_size=1,
        )
    )
    sql = f"SELECT {', '.join(columns[:4])} FROM {table}"
    if draw(st.booleans()):
        operator = draw(st.sampled_from(["=", "<", ">=", "IS NOT", "LIKE"]))
        sql += f" WHERE {draw(own)} {operator} {draw(literals)}"
    if draw(st.booleans()):
        direction = draw(st.sampled_from(["", "DESC", "NULLS LAST"]))
        sql += f" GROUP BY {draw(own)} ORDER BY {draw(own)} {direction}"
    return sql


@st.composite
def selects(draw: st.DrawFn) -> str:
    """A SELECT of anything from anything: about one in five compiles."""
    columns = ", ".join(draw(st.lists(expressions, min_size=1, max_size=4)))
    sql = f"SELECT {draw(st.sampled_from(['', 'DISTINCT ']))}{columns}"
    if draw(st.integers(0, 9)):
        tables = draw(st.lists(st.sampled_from(TABLES[:5] + TABLES[:3]), min_size=1, max_size=3))
        sql += " FROM " + draw(st.sampled_from([", ", " NATURAL JOIN ", " LEFT JOIN "])).join(
            f"{table} AS x{i}" if draw(st.booleans()) else table for i, table in enumerate(tables)
        )
        for clause in ("WHERE", "GROUP BY", "ORDER BY"):
            if draw(st.booleans()):
                sql += f" {clause} {draw(expressions)}"
        if draw(st.booleans()):
            sql += f" LIMIT {draw(st.integers(-1, 30))}"
    if draw(st.integers(0, 5)) == 0:
        numbers = f"SELECT 1 UNION ALL SELECT i + 1 FROM x LIMIT {draw(st.integers(0, 50))}"
        sql = f"WITH RECURSIVE x(i) AS ({numbers}) {sql}"
    return sql


@st.composite
def changed(draw: st.DrawFn) -> str:
    """A hostile statement with pieces removed, inserted, or taken from another."""
    sql = draw(st.sampled_from(STATEMENTS))
    for _ in range(draw(st.integers(0, 3))):
        start, end = sorted((draw(st.integers(0, len(sql))), draw(st.integers(0, len(sql)))))
        piece = draw(
            st.one_of(st.sampled_from(WORDS), st.just(""), expressions, st.sampled_from(STATEMENTS))
        )
        end = end if draw(st.booleans()) else start
        sql = f"{sql[:start]} {piece} {sql[end:]}"
    return sql[:20_000]


word_salad = st.lists(
    st.one_of(st.sampled_from(WORDS + TABLES + COLUMNS), literals), max_size=25
).map(" ".join)
statements = st.one_of(lookups(), selects(), selects(), changed(), word_salad, st.text(max_size=60))

actions = st.one_of(
    statements.map(lambda sql: f"QUERY: {sql}"),
    st.sampled_from(TABLES).map(lambda name: f"DESCRIBE: {name}"),
    st.sampled_from(TABLES).map(lambda name: f"SAMPLE {name}"),
    st.text(max_size=30).map(lambda text: f"ANSWER: {text}"),
    st.text(max_size=40),
    st.sampled_from(["query:", "Answer:\n", "ANSWER", "QUERY SELECT 1", "DESCRIBE:\tt"]),
    st.sampled_from(["ſample: t", "QUERY: \0"]),
)
