"""Every limit on an agent's SQL, in one place, with its reason.

The values let all 4,158 gold queries that were tried pass, and hold the hostile ones of
`env_server/conformance/hostile` under 2.5 s of CPU and 200 MB. Times are of one core of a busy
machine: trust the ratios.
"""

import hashlib
import json
from dataclasses import asdict, dataclass

# Deterministic functions of their arguments alone. What is not here is denied: random(),
# randomblob(), zeroblob(), load_extension(), fts3_tokenizer() (leaks a pointer), sqlite_version(),
# changes() and whatever a later SQLite adds. unhex() too: with its second argument one call takes a
# second. trim() with two is this package's (`functions.py`). The date functions are here because
# the clock is fixed (`connection.py`).
_SCALARS = """
    -> ->> abs char coalesce concat concat_ws format glob hex if ifnull iif instr length like likelihood likely lower
    ltrim max min nullif octet_length printf quote replace round rtrim sign substr substring trim typeof unicode unistr
    unistr_quote unlikely upper
    current_date current_time current_timestamp date datetime julianday strftime time timediff unixepoch
    acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod pi pow power
    radians sin sinh sqrt tan tanh trunc
    json json_array json_array_length json_extract json_object json_quote json_type json_valid
"""
_AGGREGATES = """
    avg count group_concat json_group_array json_group_object max median min percentile percentile_cont
    percentile_disc string_agg sum total
"""
_WINDOWS = """
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
"""
FUNCTIONS = tuple(sorted(set((_SCALARS + _AGGREGATES + _WINDOWS).split())))

# Of those, the ones whose single call on values of `max_length_bytes` takes 0.3 ms (JSON) to 7 ms
# (LIKE, instr).
_DEAR = """
    -> ->> format glob instr json json_array_length json_extract json_type json_valid like ltrim printf replace rtrim
    strftime trim
"""
DEAR_FUNCTIONS = tuple(sorted(_DEAR.split()))

# What an agent is shown as text. A small model reads some 2,000 tokens an observation; the longest
# cell of Spider is 213 bytes. Each cut is marked: `…` in a cell, a remark in brackets after the
# rows.
MAX_CELL_CHARS = 200
MAX_RESULT_BYTES = 4_000  # UTF-8, the closing remark included
MAX_ERROR_CHARS = 300  # SQLite's own text repeats parts of the statement
MAX_TABLES_NAMED = 60  # in the hint that follows a wrong table name


@dataclass(frozen=True)
class SqlPolicy:
    """The limits. Those that decide a result are in `digest`; a replica with another digest replays
    otherwise."""

    # Work. SQLite counts the steps of its virtual machine, so the verdict is the same on any
    # machine at any load. A plausible query takes a median of 234 steps, p99 288 k, at most 29 M.
    max_vm_steps: int = 50_000_000
    handler_vm_steps: int = 1_000  # how often they are counted: 1.03 x the time of a scan

    # Size. Single opcodes (instr, replace, LIKE) are stopped by no counter, only by short values:
    # the worst instr call takes 434 ms at 200 k, 17 ms at 50 k. The largest cell in Spider is 213
    # bytes.
    max_length_bytes: int = 50_000  # of a string, a blob or a row
    max_sql_bytes: int = 20_000
    max_columns: int = 200
    max_expr_depth: int = 100
    max_compound_selects: int = 10
    max_vdbe_ops: int = 25_000
    max_function_args: int = 16
    max_like_pattern_bytes: int = 100
    # nobody binds any; 0 would say "variable number must be between ?1 and ?0"
    max_variables: int = 1
    max_attached: int = 0  # a second database could be any file, also one that does not exist yet
    max_trigger_depth: int = 1  # nothing that is allowed fires one
    # SQLite looks for an interrupt where a loop turns, not between two calls in a row. Aliases of
    # subqueries multiply calls (`SELECT f+f AS f FROM (SELECT f+f AS f FROM ...)`), so those of the
    # compiled program are counted: 4,096 calls of instr() from 400 bytes of SQL took 27 s.
    max_dear_calls: int = 48  # of `dear_functions`: 0.35 s at most

    # Memory. A bomb of nested CTEs blows up while it is being prepared, where nothing but the heap
    # limit stops it. 96 MiB of it are up to 145 of the process, since SQLite counts no malloc
    # overhead; 128 came to 191 MB in all. of SQLite in one process; a verdict is only reached on an
    # empty heap
    max_heap_bytes: int = 96 * 1024 * 1024
    # helpers of SQLite's sorter, whose memory would depend on the machine
    max_worker_threads: int = 0
    page_cache_kib: int = 2_000  # of each open connection
    # in one worker; the least recently used is closed (opening anew costs 7 x a look-up)
    open_connections: int = 32

    # Output. An agent is shown `shown_rows`; the environment asks for more where it needs them to
    # compare.
    shown_rows: int = 20
    sample_rows: int = 5
    gold_rows: int = 1_000  # of a gold result, and the most that a comparison asks of a query
    # of a result's text and blobs; 200 columns of 50 kB in every row else pass
    max_result_bytes: int = 1_000_000

    functions: tuple[str, ...] = FUNCTIONS
    dear_functions: tuple[str, ...] = DEAR_FUNCTIONS

    # Safety nets. They depend on the machine, so they are no part of the digest. The first two are
    # CPU time: a loaded machine must not change a verdict. 50 M plain steps take 0.3 to 1.3, so
    # this is for dear ones; the error is that of the steps
    max_cpu_s: float = 2.0
    # of one job, where SQLite does not heed the interrupt: the parent kills the worker
    kill_after_cpu_s: float = 10.0
    kill_after_s: float = 60.0  # the same, wall time: a worker that is stopped, or stuck on a disk
    # a job that has cost so many workers is its author's own error, unless they got no CPU time
    max_kills: int = 2
    start_timeout_s: float = 30.0  # for a worker to say that it is ready
    # RLIMIT_AS of a worker, over what it holds at its start (33 MB). The heap limit comes first, so
    # that memory is judged alike everywhere; this one is for Python's part (a row of 200 columns of
    # 50 kB) and for faults of SQLite.
    max_address_space_growth_bytes: int = 160 * 1024 * 1024
    max_open_files: int = 128  # RLIMIT_NOFILE of a worker: `open_connections` and some
    max_file_bytes: int = 0  # RLIMIT_FSIZE of a worker, which has nothing to write
    max_core_bytes: int = 0  # RLIMIT_CORE of a worker: a crash leaves no copy of its memory
    # of a batch's results; past it the stream is out of step
    max_frame_bytes: int = 256 * 1024 * 1024

    _NETS = (
        "open_connections", "max_cpu_s", "kill_after_cpu_s", "kill_after_s", "max_kills", "start_timeout_s",
        "max_address_space_growth_bytes", "max_open_files", "max_file_bytes", "max_core_bytes", "max_frame_bytes",
    )  # fmt: skip

    def digest(self) -> str:
        """SHA-256 over the limits that decide a result."""
        fields = {name: value for name, value in asdict(self).items() if name not in self._NETS}
        fields["shown"] = (MAX_CELL_CHARS, MAX_RESULT_BYTES, MAX_ERROR_CHARS, MAX_TABLES_NAMED)
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
