"""Every limit on an agent's SQL, in one place, with its reason.

With these values all 4,158 gold queries that were tried pass, and the hostile ones of
`tests/conformance/hostile` stay under 2.5 s of CPU and 200 MB. Times are of one core of a busy
machine, so only their ratios are reliable.
"""

import hashlib
import json
from dataclasses import asdict, dataclass

# Deterministic functions of their arguments alone; everything else is denied: random(),
# randomblob(), zeroblob(), load_extension(), fts3_tokenizer() (leaks a pointer), sqlite_version(),
# changes() and whatever a later SQLite adds. unhex() too: one call with two arguments takes a
# second. median() and percentile*() too: their quicksort is quadratic for some orders, and nothing
# interrupts it (12 s for the 300,000 values of abs(2 * i - 300001)). trim() with two arguments is
# this package's own, and the date functions see a fixed clock (`sandbox.py`).
_SCALARS = """
    -> ->> abs char coalesce concat concat_ws format glob hex if ifnull iif instr length like
    likelihood likely lower ltrim max min nullif octet_length printf quote replace round rtrim sign
    substr substring trim typeof unicode unistr unistr_quote unlikely upper
    current_date current_time current_timestamp date datetime julianday strftime time timediff
    unixepoch
    acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2
    mod pi pow power radians sin sinh sqrt tan tanh trunc
    json json_array json_array_length json_extract json_object json_quote json_type json_valid
"""
_AGGREGATES = """
    avg count group_concat json_group_array json_group_object max min string_agg sum total
"""
_WINDOWS = """
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank
    row_number
"""
SCALARS, AGGREGATES, WINDOWS = map(str.split, (_SCALARS, _AGGREGATES, _WINDOWS))
FUNCTIONS = tuple(sorted({*SCALARS, *AGGREGATES, *WINDOWS}))

# Functions of which one call on values of `max_length_bytes` takes 0.3 ms (JSON) to 7 ms (LIKE).
_EXPENSIVE = """
    -> ->> format glob instr json json_array_length json_extract json_type json_valid like ltrim
    printf replace rtrim strftime trim
"""
EXPENSIVE_FUNCTIONS = tuple(sorted(_EXPENSIVE.split()))

# What an agent sees as text. A small model reads some 2,000 tokens per observation; the longest
# cell of Spider is 213 bytes. Each cut is marked: `…` in a cell, a remark in brackets after rows.
MAX_CELL_CHARS = 200
MAX_RESULT_BYTES = 4_000  # UTF-8, including the closing remark
MAX_ERROR_CHARS = 300  # SQLite's own text repeats parts of the statement
MAX_TABLES_NAMED = 60  # in the hint after a wrong table name
MAX_COLUMNS_NAMED = 100  # of each table, in the hint after a wrong column name


@dataclass(frozen=True)
class SqlLimits:
    """The limits. Those that decide a result are in `digest`: other values replay differently."""

    # Work. SQLite counts the steps of its virtual machine, so the verdict is the same on any
    # machine at any load. A plausible query takes a median of 234 steps, p99 288 k, at most 29 M.
    max_vm_steps: int = 50_000_000
    handler_vm_steps: int = 1_000  # between two counts, which cost a scan 3 % of its time

    # Size. No counter stops single opcodes (instr, replace, LIKE), only short values do: the worst
    # instr call takes 434 ms at 200 k, 17 ms at 50 k. The largest cell in Spider is 213 bytes.
    max_length_bytes: int = 50_000  # of a string, a blob or a row
    max_sql_bytes: int = 20_000
    max_columns: int = 200
    max_expr_depth: int = 100
    max_compound_selects: int = 10
    max_vdbe_ops: int = 25_000
    max_function_args: int = 16
    max_like_pattern_bytes: int = 100
    max_variables: int = 1  # none are bound; 0 makes the error "between ?1 and ?0"
    max_attached: int = 0  # a second database could be any file, even one that does not exist yet
    max_trigger_depth: int = 1  # no allowed statement fires one
    # SQLite checks for an interrupt where a loop turns, not between two calls in a row. Aliases of
    # subqueries multiply calls (`SELECT f+f AS f FROM (SELECT f+f AS f FROM ...)`), so those of the
    # compiled program are counted: 4,096 calls of instr() from 400 bytes of SQL took 27 s.
    max_expensive_calls: int = 48  # of `expensive_functions`: at most 0.35 s

    # Memory. A bomb of nested CTEs grows while it is compiled, where only the heap limit stops it.
    # It bounds the heap of SQLite in one process. SQLite does not count malloc's overhead: 96 MiB
    # take up to 145 MB of the process, 128 MiB took 191 MB. A query that runs out is tried again on
    # an empty heap before it fails.
    max_heap_bytes: int = 96 * 1024 * 1024
    # Of it, to compile a statement. Comparing aggregates is quadratic, and nothing interrupts it:
    # 1,600 of 256 aliases each took 6.5 s. Each of 9,194 golds takes less than 64 KiB.
    max_compile_bytes: int = 8 * 1024 * 1024
    max_worker_threads: int = 0  # of SQLite's sorter, whose memory would depend on the machine
    page_cache_kib: int = 2_000  # of each open connection
    open_connections: int = 32  # per worker; reopening the least recent costs 7 x a look-up

    # Output. An agent sees `shown_rows`; the environment asks for more to compare results.
    shown_rows: int = 20
    sample_rows: int = 5
    gold_rows: int = 1_000  # of a gold result, and the most that a comparison asks of a query
    max_result_bytes: int = 1_000_000  # of text and blobs; without it rows of 200 x 50 kB pass
    # Of a QUERY: no row beyond them is read. 1,000 rows of 200 took 0.1 s of a worker, and of the
    # server's event loop. The largest of 8,334 golds (shipped, Spider's, BIRD's) has 1,177.
    max_result_cells: int = 10_000

    functions: tuple[str, ...] = FUNCTIONS
    expensive_functions: tuple[str, ...] = EXPENSIVE_FUNCTIONS

    # Safety nets. They depend on the machine, so they are not in the digest. The first two are CPU
    # time, because a loaded machine must not change a verdict. 50 M plain steps take 0.3 to 1.3 s,
    # so `max_cpu_s` is for expensive steps; its error is that of the steps.
    max_cpu_s: float = 2.0
    kill_after_cpu_s: float = 10.0  # of a job that ignores the interrupt: its worker is killed
    kill_after_s: float = 60.0  # the same in wall time: a worker is stopped, or stuck on a disk
    max_kills: int = 2  # of workers by one job: then it is its own error, unless it got no CPU time
    start_timeout_s: float = 30.0  # until a worker reports that it is ready
    # RLIMIT_AS of a worker, beyond what it has at its start (33 MB). The heap limit comes first, so
    # that memory is judged alike everywhere; this one is for Python's memory (a row of 200 columns
    # of 50 kB) and for faults of SQLite.
    max_address_space_growth_bytes: int = 160 * 1024 * 1024
    max_open_files: int = 128  # RLIMIT_NOFILE of a worker: `open_connections` and a few more
    max_file_bytes: int = 0  # RLIMIT_FSIZE of a worker, which writes nothing
    max_core_bytes: int = 0  # RLIMIT_CORE of a worker: a crash leaves no copy of its memory
    max_frame_bytes: int = 256 * 1024 * 1024  # of a batch of results; a larger one is corrupt

    _NETS = (
        "open_connections", "max_cpu_s", "kill_after_cpu_s", "kill_after_s", "max_kills",
        "start_timeout_s", "max_address_space_growth_bytes", "max_open_files", "max_file_bytes",
        "max_core_bytes", "max_frame_bytes",
    )  # fmt: skip

    def digest(self) -> str:
        fields = {name: value for name, value in asdict(self).items() if name not in self._NETS}
        fields["shown"] = (
            *(MAX_CELL_CHARS, MAX_RESULT_BYTES, MAX_ERROR_CHARS),
            *(MAX_TABLES_NAMED, MAX_COLUMNS_NAMED),
        )
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
