from pathlib import Path

import pytest

from tests.env_server.audit.run_folder import record


@pytest.fixture(scope="session")
def run_folder(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tiny_data, tmp_path_factory.mktemp("runs") / "run")
