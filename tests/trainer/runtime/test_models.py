"""Loading a model from a directory or the hub, and errors that say what to do."""

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import torch
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from transformers import MistralConfig, PreTrainedTokenizerFast, Qwen3ForCausalLM

from tests.trainer.conftest import CHATML, make_tokenizer
from trainer.config.settings import ConfigError, GRPOConfig
from trainer.errors import ModelLoadError
from trainer.runtime.models import context_window, find_model, load_model_and_tokenizer, preset_of
from trainer.runtime.precision import autocast, precision


@pytest.fixture
def saved(tmp_path: Path, model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> Path:
    model.bfloat16().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def config_of(path: object) -> GRPOConfig:
    return GRPOConfig(model_name=str(path), device="cpu", dtype="float32")


def test_a_saved_model_comes_back_in_float32(saved, model):
    loaded, tokenizer = load_model_and_tokenizer(config_of(saved))
    assert loaded.dtype is torch.float32
    assert loaded.config._attn_implementation == "sdpa"
    assert torch.equal(
        loaded.get_input_embeddings().weight, model.get_input_embeddings().weight.float()
    )
    assert tokenizer.chat_template


@pytest.mark.parametrize("read", ["short", "full"])
def test_another_system_prompt_than_that_of_the_training_is_told(saved, read, caplog):
    path = saved / "config.json"
    trained = {**json.loads(path.read_text()), "sqlenv": {"system_prompt": "short"}}
    path.write_text(json.dumps(trained))
    load_model_and_tokenizer(GRPOConfig(model_name=str(saved), device="cpu", system_prompt=read))
    assert ("trained with the system prompt 'short'" in caplog.text) == (read == "full")


def test_code_in_a_models_folder_is_run_only_if_asked(saved, monkeypatch):
    """transformers itself would ask on the terminal, and take an answer from there."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asks"))
    described = json.loads((saved / "config.json").read_text())
    own = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.Own"}
    described |= {"model_type": "own", "auto_map": own}
    (saved / "config.json").write_text(json.dumps(described))
    (saved / "own.py").write_text(f"open({str(saved / 'ran')!r}, 'w').close()")
    with pytest.raises(ModelLoadError, match=r"code of its own.*--set trust_remote_code=true"):
        load_model_and_tokenizer(config_of(saved))
    assert not (saved / "ran").exists()
    with pytest.raises(AttributeError, match="OwnConfig"):  # the code ran, and has no such class
        load_model_and_tokenizer(config_of(saved).override(trust_remote_code=True))
    assert (saved / "ran").exists()


@pytest.mark.parametrize("content", [b"x", b"", b"cos\nsystem\n(S'true'\ntR."])
def test_a_pickle_that_cannot_be_read_safely_is_refused(saved, content):
    (saved / "model.safetensors").unlink()
    (saved / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(ModelLoadError, match=r"pickle|damaged"):
        load_model_and_tokenizer(config_of(saved))


def put(name: str, text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_text(text)

    return change


def remove(*names: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def take_away(folder: Path) -> None:
    shutil.rmtree(folder)


def shorten(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:9000])


def widen(folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "intermediate_size": config["intermediate_size"] * 2}))


def forget_a_tensor(folder: Path) -> None:
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})


def lose_a_shard(folder: Path) -> None:
    model = Qwen3ForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="50KB")
    min(folder.glob("model-*.safetensors")).unlink()


def only_adapters(folder: Path) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")
    (folder / "model.safetensors").unlink()


def with_tokenizer(**fields: str | None) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        tokenizer = make_tokenizer()
        for name, value in fields.items():
            setattr(tokenizer, name, value)
        for path in folder.glob("chat_template*"):
            path.unlink()
        tokenizer.save_pretrained(folder)

    return change


def with_more_tokens(folder: Path) -> None:
    other = make_tokenizer()
    other.add_tokens([f"<extra{n}>" for n in range(10)])
    other.save_pretrained(folder)


def slide(folder: Path) -> None:
    path = folder / "config.json"
    changed = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    config = {**json.loads(path.read_text()), **changed}
    config["layer_types"] = ["full_attention", "sliding_attention"]
    path.write_text(json.dumps(config))


def into_a_run(folder):
    shutil.move(folder, folder.parent / "moved")
    folder.mkdir()
    shutil.move(folder.parent / "moved", folder / "model")


SYSTEM = "{% if messages[0]['role'] == 'system' %}"
# as Gemma's does
REFUSING = SYSTEM + "{{ raise_exception('System role not supported') }}{% endif %}" + CHATML
FORGETTING = CHATML.replace(" %}", " if message['role'] != 'system' %}", 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (take_away, r"no such directory.*save_pretrained"),
        (remove("config.json"), r"no config\.json"),
        (into_a_run, r"a run's folder; use .*/model"),
        (only_adapters, r"no adapter_model\.safetensors; copy or download"),
        (
            remove("model.safetensors"),
            r"no model\.safetensors; .*download the whole directory again",
        ),
        (lose_a_shard, r"can't load the model .*damaged"),
        (remove("tokenizer.json"), r"no tokenizer\.json.*save_pretrained"),
        (put("config.json", "{"), r"can't load the model .*damaged"),
        (put("config.json", '{"model_type": "t5"}'), "can't load the model"),
        (shorten, r"can't load the model .*damaged"),
        (widen, r"another shape: model\.layers\.0\.mlp\.\S+, .*download"),
        (forget_a_tensor, r"config\.json, missing .*: model\.layers\.1\.mlp\.up_proj\.weight;"),
        (with_tokenizer(eos_token=None), r"no end token, .*eos_token in tokenizer_config\.json"),
        (with_tokenizer(chat_template=None), r"no chat template; .*, or put .*\.jinja"),
        (
            with_tokenizer(chat_template=REFUSING),
            r"System role not supported.*chat_template\.jinja",
        ),
        (with_tokenizer(chat_template=FORGETTING), r"leaves out the system message.*\.jinja"),
        (with_more_tokens, "don't belong together"),
        (slide, "sliding_attention layers"),
    ],
)
def test_an_unusable_folder_is_refused_in_one_line_with_a_remedy(saved, change, message):
    change(saved)
    with pytest.raises(ModelLoadError, match=message) as caught:
        load_model_and_tokenizer(config_of(saved))
    assert "\n" not in caught.value.message


def test_one_sliding_window_of_all_layers_is_the_window():
    shape = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 9}
    for sliding, window in ((64, 64), (None, 512)):
        config = MistralConfig(**shape, max_position_embeddings=512, sliding_window=sliding)
        assert context_window(SimpleNamespace(config=config)) == window


GATED = "sqlenv-tests/not-a-model"


def hub_at(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    for module in ("constants", "file_download"):
        monkeypatch.setattr(
            f"huggingface_hub.{module}.HUGGINGFACE_CO_URL_TEMPLATE",
            url + "/{repo_id}/resolve/{revision}/{filename}",
            raising=False,
        )


@pytest.mark.parametrize("kind", [GatedRepoError, RepositoryNotFoundError])
def test_a_refusal_of_the_hub_names_the_remedy(monkeypatch, kind):
    def refuse(url: str, timeout: float) -> None:
        raise kind("not for you", response=httpx.Response(401, request=httpx.Request("HEAD", url)))

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", refuse)
    with pytest.raises(ModelLoadError, match=rf"https://huggingface\.co/{GATED}.*hf auth login"):
        find_model(GATED)


UNREACHABLE = (
    rf"'{GATED}': there is no such folder .*, it is not in the cache, and .* couldn't be reached "
    rf".*'hf download {GATED} --local-dir DIR'.*--model DIR"
)


def test_a_name_without_an_owner_is_not_looked_up(monkeypatch):
    asked = "huggingface_hub.get_hf_file_metadata"
    monkeypatch.setattr(asked, lambda *_, **__: pytest.fail("asked the hub"))
    with pytest.raises(ModelLoadError, match="is named OWNER/qwen3; pass a folder"):
        find_model("qwen3")


def test_a_hub_that_does_not_answer_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("trainer.runtime.models.HUB_WAIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub_at(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(ModelLoadError, match=UNREACHABLE):
            find_model(GATED)
        download = "huggingface_hub.hf_hub_download"  # it would try for 20 s
        monkeypatch.setattr(download, lambda *_, **__: pytest.fail("downloads"))
        assert preset_of(GATED).why == f"the size of {GATED} is unknown"
    assert preset_of(GATED, served=True).why == f"the size of {GATED} is unknown"


def test_a_cached_model_is_loaded_without_the_hub(saved, monkeypatch, tmp_path_factory):
    cache = tmp_path_factory.mktemp("hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    hub_at(monkeypatch, "http://127.0.0.1:9")
    repository = cache / f"models--{GATED.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    snapshot = shutil.copytree(saved, repository / "snapshots" / ("0" * 40))
    assert find_model(GATED) == str(snapshot)
    assert preset_of(GATED).preset == "offline"  # by its size
    loaded, tokenizer = load_model_and_tokenizer(config_of(GATED))
    assert loaded.num_parameters() > 0
    assert tokenizer.chat_template


@pytest.mark.parametrize("name", ["no/such", "./no/such", "nosuch"])
def test_every_command_refuses_a_missing_model_before_torch_is_imported(name, monkeypatch):
    """The imports alone take seconds: a missing model is refused within 5 s offline."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    commands = [
        ["train"],
        ["evaluate"],
        ["sft"],
        ["play", "--db", "data/databases/nowhere.sqlite", "--question", "How many?"],
    ]
    script = (
        "import json, sys\nfrom trainer.__main__ import app\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    try:\n        app(command)\n"
        "    except SystemExit as ended:\n"
        "        print(ended.code, 'torch' in sys.modules, 'transformers' in sys.modules)\n"
        "    print('the next command', file=sys.stderr)"
    )
    called = json.dumps([[*command, "--model", name] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", script, called],
        **{"capture_output": True, "text": True, "timeout": 60, "check": False},
    )
    assert done.stdout.splitlines() == ["1 False False"] * len(commands)
    errors = done.stderr.split("the next command\n")[:-1]
    for command, error in zip(commands, errors, strict=True):
        assert re.search(
            r"error: (can't load the model 'no/such'|no model directory|no model 'nosuch')", error
        ), command
        assert re.search(r"hf download|save_pretrained|is named OWNER/nosuch", error), command


def test_a_missing_pad_token_becomes_the_eos(saved):
    with_tokenizer(pad_token=None)(saved)
    _, tokenizer = load_model_and_tokenizer(config_of(saved))
    assert tokenizer.pad_token_id == tokenizer.eos_token_id


@pytest.mark.parametrize(
    ("cuda", "native", "device", "dtype", "expected"),
    [
        (False, False, "auto", "auto", ("cpu", torch.float32)),
        (False, True, "auto", "auto", ("cpu", torch.bfloat16)),
        (False, False, "cpu", "bfloat16", ("cpu", torch.bfloat16)),
        (True, True, "auto", "auto", ("cuda", torch.bfloat16)),
        (True, False, "auto", "auto", ("cuda", torch.float16)),  # a T4
        (True, True, "cpu", "auto", ("cpu", torch.bfloat16)),
        (True, True, "cpu", "float32", ("cpu", torch.float32)),
        (True, True, "cuda:1", "float32", ("cuda:1", torch.float32)),
    ],
)
def test_precision(monkeypatch, cuda, native, device, dtype, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation=True: native or including_emulation,
    )
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: {"avx512_bf16": native}, raising=False
    )
    assert precision(device, dtype) == expected


def test_an_impossible_device_or_dtype_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="use device=cpu"):
        precision("cuda", "auto")
    with pytest.raises(ConfigError, match="float16"):
        precision("cpu", "float16")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigError, match=r"cuda:2.*2 CUDA devices"):
        precision("cuda:2", "float32")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_logits_are_float32_in_every_number_format(saved, dtype):
    config = config_of(saved).override(dtype=dtype)
    model, _ = load_model_and_tokenizer(config)
    ids = torch.arange(3, 40)[None]
    with torch.no_grad(), autocast(config):
        logits = model(input_ids=ids).logits
        hidden = model.model(input_ids=ids).last_hidden_state
    assert logits.dtype is torch.float32
    # more digits than bfloat16 has
    assert torch.equal(logits, hidden.float() @ model.lm_head.weight.T)
    assert not torch.equal(logits, logits.bfloat16().float())
