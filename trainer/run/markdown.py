"""Pages in Markdown, from the templates of this package."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from trainer.run.console import percent_number, rate_text, seconds_text

_TEMPLATES = Environment(
    loader=PackageLoader("trainer.run"),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
_TEMPLATES.filters |= {"percent": percent_number, "rate": rate_text, "seconds": seconds_text}


def markdown(template: str, **values: Any) -> str:
    return _TEMPLATES.get_template(template).render(values)
