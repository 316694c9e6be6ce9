"""Settings of `python -m data`, from environment variables with the prefix SQLENV_."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class DataSettings(BaseSettings):
    """Where public data sets come from and where downloads are kept. Seconds and bytes."""

    model_config = SettingsConfigDict(env_prefix="SQLENV_")

    spider_url: str = Field(
        default="https://drive.google.com/uc?export=download&id=1403EGqzIDoHMdQF4c9Bkyl7dZLZ5Wt6J",
        description="Spider 1.0's official archive, on Google Drive",
    )
    spider_sha256: str | None = Field(
        default=None,
        description="the archive's SHA-256; not checked by default, since its authors publish none",
    )
    cache_dir: Path = Field(
        default_factory=lambda: Path.home() / ".cache" / "sqlenv",
        description="where downloaded archives are kept",
    )
    download_attempts: int = Field(default=5, ge=1, description="transfers in all, broken ones too")
    download_timeout_s: float = Field(
        default=60.0, gt=0, description="longest silence of a server during a transfer"
    )
    unpacked_max_bytes: int = Field(
        default=20 * 2**30, gt=0, description="largest unpacked size of an archive"
    )
