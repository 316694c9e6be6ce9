"""The prompts of a run: its questions as chat messages."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shared.dataset import OPEN, Question, is_dev_question, load_questions, load_split, split_path
from shared.errors import QuestionLoadError
from shared.shipped import shipped_path
from trainer.config.settings import ConfigError, GRPOConfig
from trainer.errors import PromptError
from trainer.rollout.prompts import opening_messages

Prompt = list[dict[str, Any]]


def prompt_of(question_id: str, question_text: str, config: GRPOConfig) -> Prompt:
    """Return the messages of one question. The rollout finds its episode by the extra key
    `question_id`, which TRL keeps, and replaces the user's text by the server's first
    observation."""
    return [
        *opening_messages(config.system_prompt),
        {"role": "user", "content": f"Question: {question_text}", "question_id": question_id},
    ]


def question_id_of(prompt: Sequence[Mapping[str, Any]]) -> str:
    messages = [] if isinstance(prompt, str) or not isinstance(prompt, Sequence) else prompt
    for message in reversed(messages):
        if isinstance(message, Mapping) and message.get("question_id"):
            return str(message["question_id"])
    raise PromptError(
        f"a prompt names no question: {str(prompt)[:120]!r}; make prompts with "
        "load_question_prompts, which puts question_id into the user's message"
    )


def as_prompts(prompts: Sequence[str | Prompt], config: GRPOConfig) -> list[Prompt]:
    """Return chat prompts; a text becomes the prompt of the question that has it, white space
    ignored. `PromptError` for the text of none of `config`'s questions or of several."""
    if isinstance(prompts, str):
        raise PromptError("rollout_func takes a list of prompts: put the text into a list")
    questions: list[Question] = []
    if any(isinstance(prompt, str) for prompt in prompts):
        folder = shipped_path(config.questions_path).parent
        for path in sorted(folder.glob("questions_*.json")):
            questions += load_questions(path)

    def chat(prompt: str | Prompt) -> Prompt:
        if not isinstance(prompt, str):
            return list(prompt)
        found = [one for one in questions if one.question_text.split() == prompt.split()]
        if not found:
            raise PromptError(
                f"no question of {config.data_dir} has the text {prompt[:120]!r}: "
                "load_question_prompts(config) lists them"
            )
        if len(found) > 1:
            ids = ", ".join(f"{one.question_id} on {one.database_name}" for one in found)
            raise PromptError(
                f"{len(found)} questions of {config.data_dir} have the text {prompt[:120]!r} "
                f"({ids}): choose one with "
                "trainer.rollout.dataset.prompt_of(question_id, text, config)"
            )
        return prompt_of(found[0].question_id, found[0].question_text, config)

    return [chat(prompt) for prompt in prompts]


def load_question_prompts(config: GRPOConfig, split: str = "train") -> list[dict[str, Any]]:
    """Return one row per question: prompt, question_id, database_name, difficulty, as
    `datasets.Dataset.from_list` takes them. Questions outside `config.difficulty_filter` are left
    out, but no open ones; `QuestionLoadError` names the file if none remains."""
    path, levels = split_path(config.questions_path, split), (*config.difficulty_filter, OPEN)
    questions = load_split(config.questions_path, split)
    kept = [question for question in questions if question.difficulty in levels]
    if not kept:
        raise QuestionLoadError(
            f"{path} has no question of difficulty {' or '.join(config.difficulty_filter)} (it has "
            f"{', '.join(sorted({question.difficulty for question in questions}))}): "
            "change difficulty_filter (--difficulty of evaluate)"
        )
    return [
        {
            "prompt": prompt_of(question.question_id, question.question_text, config),
            "question_id": question.question_id,
            "database_name": question.database_name,
            "difficulty": question.difficulty,
        }
        for question in kept
    ]


def check_training_questions(question_ids: Iterable[str], config: GRPOConfig) -> None:
    """Raise `ConfigError` if questions are of a published development split, whose results are
    compared with others', unless `config.allow_dev_questions`."""
    found = [question_id for question_id in question_ids if is_dev_question(question_id)]
    if found and not config.allow_dev_questions:
        raise ConfigError(
            f"{len(found)} of the training questions are of a published development split "
            f"({found[0]}, ...), which is only for measuring: remove them, or pass "
            "--set allow_dev_questions=true and do not compare the trained "
            "model's result on it"
        )
