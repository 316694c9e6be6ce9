"""The standards agree with the official Spider evaluator on a real agent's queries."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from env_server.sql import JobKind, SqlJob, SqlLimits
from env_server.sql.run import SqlRunner
from env_server.verifier import STANDARDS, Gold, column_order

SPIDER = Path(os.environ.get("SPIDER_DIR", "missing"))
MAX_ROWS = 100_000  # of one result; the official evaluator has no limit
LIMITS = SqlLimits(gold_rows=MAX_ROWS, max_result_bytes=500_000_000)
MAX_CELLS = 20_000_000  # of one search for an order of columns


@pytest.mark.slow
@pytest.mark.skipif(not SPIDER.is_dir(), reason="SPIDER_DIR names no copy of Spider")
def test_the_standards_agree_with_the_official_evaluator() -> None:
    """Spider's always; strict but for the order of columns."""
    agree, compared = Counter[str](), 0
    with SqlRunner(LIMITS) as runner:
        for line in (SPIDER / "verdict_pairs.jsonl").read_text().splitlines():
            pair = json.loads(line)
            if pair["pred_status"] != "ok":  # it did not run there
                continue
            path = str(SPIDER / "database" / pair["db_id"] / f"{pair['db_id']}.sqlite")
            gold_rows, found = (
                runner.run(SqlJob(JobKind.QUERY, path, pair[key], MAX_ROWS))
                for key in ("gold", "pred")
            )
            assert gold_rows.error is found.error is None
            gold = Gold.of([list(row) for row in gold_rows.rows], "table", pair["gold"])
            compared += 1
            for name, standard in STANDARDS.items():
                right = standard.result(found.rows, gold)
                agree[name] += right == pair["official_ex_keep_distinct"]
                if name == "strict" and right != pair["official_ex_keep_distinct"]:
                    order = column_order(found.rows, gold.rows, len(gold.blocks) > 1, MAX_CELLS)
                    assert order, pair["dev_idx"]
                    assert list(order) != sorted(order), pair["dev_idx"]
    assert compared == 320
    assert agree["spider"] == 320
    assert agree["strict"] == 309
