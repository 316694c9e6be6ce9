"""Every limit on an agent's SQL, in one place, with its reason.

The values let all 4,158 gold queries that were tried pass, and held 54 hostile ones under 2.1 s and 144 MB. A query
made of the dearest single steps (`unhex(hex(...))` on values near `max_length_bytes`) is left to `max_cpu_s`.
"""

import hashlib
import json
from dataclasses import asdict, dataclass

# Deterministic functions of their arguments alone. What is not here is denied: random(), randomblob(), zeroblob(),
# load_extension(), fts3_tokenizer() (leaks a pointer), sqlite_version(), changes() and whatever a later SQLite adds.
# The date functions are here because the clock is fixed (`connection.py`).
_SCALARS = """
    -> ->> abs char coalesce concat concat_ws format glob hex if ifnull iif instr length like likelihood likely lower
    ltrim max min nullif octet_length printf quote replace round rtrim sign substr substring trim typeof unhex unicode
    unistr unistr_quote unlikely upper
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


@dataclass(frozen=True)
class SqlPolicy:
    """The limits. Those that decide a result are in `digest`; a replica with another digest replays otherwise."""

    # Work. SQLite counts the steps of its virtual machine, so the verdict is the same on any machine at any load. A
    # plausible query takes a median of 234 steps, p99 288 k, at most 29 M.
    max_vm_steps: int = 50_000_000
    handler_vm_steps: int = 1_000  # how often they are counted: 1.03 x the time of a scan

    # Size. Single opcodes (instr, replace, LIKE) are stopped by no counter, only by short values: the worst instr call
    # takes 434 ms at 200 k, 17 ms at 50 k. The largest cell in Spider is 213 bytes.
    max_length_bytes: int = 50_000  # of a string, a blob or a row
    max_sql_bytes: int = 20_000
    max_columns: int = 200
    max_expr_depth: int = 100
    max_compound_selects: int = 10
    max_vdbe_ops: int = 25_000
    max_function_args: int = 16
    max_like_pattern_bytes: int = 100
    max_variables: int = 1  # nobody binds any; 0 would say "variable number must be between ?1 and ?0"

    # Memory. A bomb of nested CTEs blows up while it is being prepared, where nothing but the heap limit stops it.
    max_heap_bytes: int = 128 * 1024 * 1024  # of SQLite in one process; a verdict is only reached on an empty heap
    page_cache_kib: int = 2_000  # of each open connection
    open_connections: int = 32  # in one worker; the least recently used is closed (opening anew costs 7 x a look-up)

    # Output. An agent is shown `shown_rows`; the environment asks for more where it needs them to compare.
    shown_rows: int = 20
    sample_rows: int = 5
    gold_rows: int = 1_000  # of a gold result, and the most that a comparison asks of a query
    max_result_bytes: int = 1_000_000  # of a result's text and blobs; 200 columns of 50 kB in every row else pass

    functions: tuple[str, ...] = FUNCTIONS

    # Safety nets. They depend on the machine, so they are no part of the digest. The first two are CPU time: a loaded
    # machine must not change a verdict.
    max_cpu_s: float = 10.0  # checked where the steps are counted, 50 M of which take 0.3 to 1.3; the error is theirs
    kill_after_cpu_s: float = 15.0  # of one job; then the parent kills the worker
    kill_after_s: float = 60.0  # the same, wall time: a worker that is stopped, or stuck on a disk
    max_kills: int = 2  # a job that has lost so many workers is its author's own error
    start_timeout_s: float = 30.0  # for a worker to say that it is ready
    max_address_space_bytes: int = 2 * 1024**3  # RLIMIT_AS of a worker: Python, SQLite's heap and the results
    max_open_files: int = 128  # RLIMIT_NOFILE of a worker

    _NETS = (
        "open_connections", "max_cpu_s", "kill_after_cpu_s", "kill_after_s", "max_kills", "start_timeout_s",
        "max_address_space_bytes", "max_open_files",
    )  # fmt: skip

    def digest(self) -> str:
        """SHA-256 over the limits that decide a result."""
        fields = {name: value for name, value in asdict(self).items() if name not in self._NETS}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
