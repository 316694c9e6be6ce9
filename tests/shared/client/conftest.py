"""Asynchronous tests run with `drive`."""

import inspect

import pytest

from tests.shared.client.fake_server import drive


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function; it must leave no task behind."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    drive(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
