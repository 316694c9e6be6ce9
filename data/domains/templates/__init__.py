"""Questions of any domain: a registry of templates, and a sampler that balances forms and answers.

    FORMS                       form name -> (difficulty, template)
    ask(form, asker)            one draft of a form, or None where the draw gave nothing to ask
    balanced(...)               many different questions of one database, with golds, spread over forms and answers

A template takes an `Asker` and returns a `Draft`, or raises `NoQuestionError`. It draws everything
from the asker's stream, and works on any `Domain`: it names no table, and it takes words only from
the domain.
"""

from data.domains.templates.asker import Asker, NoQuestionError
from data.domains.templates.balance import FORMS, Asked, ask, balanced

__all__ = ["FORMS", "Asked", "Asker", "NoQuestionError", "ask", "balanced"]
