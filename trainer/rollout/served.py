"""A model behind an OpenAI-compatible server, ready to play the game of a `GRPOConfig`."""

from typing import Any

from trainer.config.settings import ApiName, GRPOConfig
from trainer.errors import ModelLoadError
from trainer.rollout.chat_codec import ChatCodec, codec_of
from trainer.rollout.generators.model_server import ModelServer
from trainer.rollout.generators.openai_players import CompletionsGenerator, OpenAIPolicy
from trainer.rollout.loop import action_end
from trainer.runtime.models import load_tokenizer


def served_model(
    config: GRPOConfig,
    base_url: str,
    api: ApiName = "chat",
    tokenizer_name: str | None = None,
    **connection: Any,
) -> tuple[ModelServer, dict[str, Any]]:
    """Return the server of `config.model_name` at `base_url`, and what `play_episodes` takes of it:
    a policy, or to exchange ids a generator with its tokenizer. `connection`: see `ModelServer`."""
    name = config.model_name
    if api != "completions":
        policy = OpenAIPolicy(
            name,
            base_url,
            one_action_per_turn=config.one_action_per_turn,
            thinking=config.thinking,
            max_tokens=config.max_new_tokens,
            **connection,
        )
        policy.check()
        return policy, {"policy": policy}
    try:
        tokenizer = load_tokenizer(tokenizer_name or name, config.trust_remote_code)
    except ModelLoadError as error:
        raise ModelLoadError(
            f"token ids need the tokenizer of {name} ({error.message}): name its folder or hub "
            "name with --tokenizer, or exchange texts with --api chat"
        ) from error
    codec = codec_of(tokenizer, config.thinking)
    generator = completions_generator(config, base_url, codec, **connection)
    generator.check()
    return generator, {"generator": generator, "tokenizer": tokenizer}


def completions_generator(
    config: GRPOConfig, base_url: str, codec: ChatCodec, **connection: Any
) -> CompletionsGenerator:
    return CompletionsGenerator(
        config.model_name,
        base_url,
        codec,
        max_context_tokens=config.max_context_tokens,
        ends_action=action_end(codec, config),
        max_tokens=config.max_new_tokens,
        **connection,
    )
