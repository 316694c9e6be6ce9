"""Questions on any domain: templates, and a sampler that balances forms and answers.

A template takes an `Asker` and returns a `Draft`, or raises `NoQuestionError`. It draws everything
from the asker's stream and names no table: words come from the domain and from wordings.toml.
"""

from data.domains.templates.asker import Asker, NoQuestionError
from data.domains.templates.balance import FORMS, AnsweredDraft, ask, balanced

__all__ = ["FORMS", "AnsweredDraft", "Asker", "NoQuestionError", "ask", "balanced"]
