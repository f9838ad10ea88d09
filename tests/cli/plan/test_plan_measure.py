"""`gpuwatch plan measure` where there is no PyTorch, or no GPU."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Shell

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256}  # fmt: skip


def test_without_pytorch_or_a_gpu_it_says_so_in_one_line(shell: Shell, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA))
    ran = shell("plan", "measure", str(config), "--method", "qlora", "--write")
    assert (ran.code, ran.out, ran.err.count("\n")) == (3, "", 1)
    assert ran.err.startswith("not measured: PyTorch ")


def test_keys_that_change_nothing_are_refused(shell: Shell) -> None:
    ran = shell("plan", "measure", "llama-3.1-8b", "--method", "full", "--rank", "8")
    assert (ran.code, "--rank requires --method lora or qlora" in ran.err) == (2, True)


def test_other_models_are_refused_before_a_gpu_is_looked_for(shell: Shell) -> None:
    for name in ("gpt-oss-120b", "mixtral-8x7b-v0.1", "deepseek-v3"):
        ran = shell("plan", "measure", name)
        assert (ran.code, "only decoders with equal layers" in ran.err) == (2, True), name
