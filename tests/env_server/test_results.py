"""The cache of QUERYs' results: equal replies, fewer SQL jobs, bounded memory, an off switch."""

import pytest

from env_server.questions import QuestionBank
from env_server.state import OVERHEAD_BYTES, Effect, ResultCache
from shared.dataset import Question
from tests.env_server.pool_driver import Driver

pytestmark = pytest.mark.anyio


def key(number: int) -> tuple[str, str]:
    return "question", f"SELECT {number:04}"


def test_the_least_recently_used_go_and_the_bytes_are_bounded() -> None:
    cache = ResultCache(5 * (OVERHEAD_BYTES + 500))
    for number in range(50):
        cache.put(key(number), Effect("x" * 300))
        assert cache.get(key(0)) is not None  # in use all the time
        assert 0 < cache.held_bytes <= cache.max_bytes
    kept = [number for number in range(50) if cache.get(key(number)) is not None]
    assert kept == [0, *range(51 - len(kept), 50)]
    assert 5 <= len(kept) < 10


@pytest.mark.parametrize("code", ["sql_budget", "sql_killed", "db_error"])
def test_errors_that_may_not_repeat_are_not_held(code: str) -> None:
    cache = ResultCache(100_000)
    cache.put(key(1), Effect(error="too much", error_code=code))
    assert cache.get(key(1)) is None


@pytest.mark.parametrize("sql", ["SELECT title FROM products", "SELECT nothing FROM products"])
async def test_an_equal_query_runs_no_sql_and_gets_an_equal_reply(
    bank: QuestionBank, question: Question, sql: str
) -> None:
    replies, jobs = [], []
    for max_bytes in (0, 100_000):
        driver = Driver(bank, question, result_cache_bytes=max_bytes)
        for episode_id in "ab":
            await driver.reset(episode_id)
            before = driver.sql.jobs
            replies.append(await driver.step(f"QUERY: {sql}", 0, episode_id))
            jobs.append(driver.sql.jobs - before)
        counts = driver.pool.results.hits, driver.pool.results.misses
        assert counts == ((1, 1) if max_bytes else (0, 0))
        driver.sql.runner.close()
    assert jobs == [1, 1, 1, 0]
    assert len(set(replies)) == 1


async def test_another_question_about_the_database_has_its_own_result(
    bank: QuestionBank, question: Question
) -> None:
    other = next(
        one
        for one in bank.splits["train"]
        if one.database_name == question.database_name and one.gold_sql != question.gold_sql
    )
    driver, replies = Driver(bank, question), []
    for one in (question, other, question):
        episode_id = f"e{len(replies)}"
        await driver.reset(episode_id, question_id=one.question_id)
        replies.append(await driver.step(driver.query, 0, episode_id))
    driver.sql.runner.close()
    assert replies[0] == replies[2] != replies[1]
    assert driver.pool.results.hits == 1
