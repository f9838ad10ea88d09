"""`gpuwatch plan size`: the parts of the memory, and the cards that hold them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuwatch.domain.market.gpu_cards import gpu_specs
from tests.checkout import ROOT
from tests.cli.conftest import Shell

SIZE = ("plan", "size")


def test_the_parts_add_up_and_are_explained(shell: Shell) -> None:
    ran = shell(*SIZE, "--params", "Llama 3.1 8B", "--method", "qlora")
    assert ran.code == 0
    assert "weights" in ran.out
    assert "total" in ran.out
    assert "the sources count weights only: 4.0 GB" in ran.err
    found = shell(*SIZE, "--params", "Llama 3.1 8B", "--method", "qlora", "--json").json
    assert sum(part["gb"] for part in found["parts"]) == pytest.approx(found["total_gb"])
    assert {"weights", "embeddings", "dequantised", "adapters", "gradients", "optimizer", "activations", "logits"} == {
        part["name"] for part in found["parts"]
    }


def test_what_speaks_against_a_card_is_said_for_training_alone(shell: Shell) -> None:
    train = shell(*SIZE, "--params", "70B", "--gpu", "RTX 3090", "--json").json["fits"]
    assert train[0]["against"] == ["no NVLink"]
    run = shell(*SIZE, "--params", "70B", "--gpu", "RTX 3090", "--method", "inference", "--json").json["fits"]
    assert run[0]["against"] == []
    assert run[0]["cards"] == 8


def test_no_card_at_all_is_an_answer(shell: Shell) -> None:
    ran = shell(*SIZE, "--params", "70B", "--gpu", "T4", "--set", "max_cards=4")
    assert (ran.code, "4 or fewer cards of any model do not hold it." in ran.out) == (0, True)


def test_a_card_may_be_filled_further_or_less(shell: Shell) -> None:
    """70B in 16 bits: 142 GB and 1 GB on each of two cards of 80 GiB."""
    of_70b = (*SIZE, "--params", "70B", "--method", "inference", "--gpu", "H100 SXM")
    assert "each filled to at most 90 %\n" in shell(*of_70b).out
    found = {fill: shell(*of_70b, "--set", f"fill={fill}", "--json").json for fill in (85, 83, 95)}
    assert [found[fill]["fits"][0]["cards"] for fill in (85, 83, 95)] == [2, 4, 2]
    assert [found[fill]["reserve"] for fill in (85, 83, 95)] == [0.15, 0.17, 0.05]
    assert shell(*of_70b, "--set", "fill=101").code == 2


def test_a_models_config_says_its_shape(shell: Shell) -> None:
    fields = {
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "intermediate_size": 14336,
        "vocab_size": 128256,
    }
    path = shell.folder / "config.json"
    path.write_text(json.dumps(fields))
    found = shell(*SIZE, "--set", f"shape={path}", "--json").json
    assert found["params"] == pytest.approx(8.03e9, rel=0.01)


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"hidden_size": "x"}', "", "\x00", "[" * 100_000, '{"hidden_size": 0}']
)
def test_a_config_that_is_none_is_one_line(shell: Shell, content: str) -> None:
    path = shell.folder / "config.json"
    path.write_text(content)
    ran = shell(*SIZE, "--set", f"shape={path}")
    assert ran.code == 2
    assert "config.json" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ((), "the model is missing"),
        (("--params", "huge"), "expected a number of parameters"),
        (("--params", "70B", "--precision", "int4"), "cannot be trained"),
        (("--params", "70B", "--gpu", "NoCard"), "unknown GPU"),
        (("--params", "8B", "--set", "rank=8"), "rank requires --method lora or qlora"),
        (("--params", "8B", "--method", "inference", "--optimizer", "lion"), "--optimizer applies to training only"),
        (("--set", "shape=absent.json"), "absent.json"),
        (("--params", "70B", "--batch", "0"), "--batch"),
    ],
)
def test_wrong_options_are_reported(shell: Shell, options: tuple[str, ...], reported: str) -> None:
    ran = shell(*SIZE, *options)
    assert ran.code == 2
    assert reported in ran.err
    assert "Traceback" not in ran.err


def test_it_needs_no_settings_and_no_store(shell: Shell, tmp_path: Path) -> None:
    (shell.folder / "gpuwatch.toml").write_text("this is no TOML")
    assert shell(*SIZE, "--params", "7B").code == 0


def test_a_card_has_the_same_memory_in_every_command(shell: Shell) -> None:
    """The catalogue's, in GiB: a B200 has 180."""
    specs = gpu_specs()["B200 SXM"].memory_gib
    asked = (*SIZE, "--params", "70B", "--method", "inference", "--gpu", "B200")
    (card,) = shell(*asked, "--json").json["fits"]
    shown = shell(*asked).out
    assert card["memory_gib"] == specs == 180
    assert "1× B200 SXM       180 " in shown
    assert "GiB each" in shown


def test_a_config_that_is_not_understood_in_part_says_so_in_every_plan(shell: Shell) -> None:
    fields = {
        "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 128256, "num_zebra_experts": 8,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128},
    }  # fmt: skip
    (shell.folder / "odd.json").write_text(json.dumps(fields))
    unknown = "keys that are not understood, and may change the size: num_zebra_experts"
    awq = "awq as published: 4.156 bits for 86.9% of the weights, 16 for the others"
    run = ("odd.json", "--method", "inference")
    ran = shell(*SIZE, "--model", *run, "--json")
    assert (unknown in ran.err, awq in ran.err) == (True, True)
    assert (ran.json["remarks"], ran.json["quantisation"]["counted"]) == ([unknown], True)
    assert ran.json["kv_bytes_token"] == 131072
    assert ran.json["parts"][0]["gb"] == pytest.approx(5.73, rel=0.01)
    in_bf16 = shell(*SIZE, "--model", *run, "--precision", "bf16", "--json")
    assert "the published weights are quantised (awq); counted here in bf16" in in_bf16.err
    assert in_bf16.json["parts"][0]["gb"] == pytest.approx(16.06, rel=0.01)
    fit = shell("plan", "fit", "--size-of", *run, "--price", "H100=2.0")
    assert (unknown in fit.err, awq in fit.err) == (True, True)
    job = shell("plan", "job", "1x H100 @ 2.00", "--size-of", *run, "--tokens", "1M")
    assert (unknown in job.err, awq in job.err) == (True, True)


def test_a_diffusion_model_has_memory_and_speed_by_its_own_config(shell: Shell, tmp_path: Path) -> None:
    config = str(ROOT / "examples/models/sdxl-unet.json")
    ran = shell("plan", "size", "--model", config, "--method", "inference", "--gpu", "RTX 4090")
    assert (ran.code, "sdxl-unet (UNet2DConditionModel), inference" in ran.out) == (0, True)
    assert "RTX 4090 computes 3.92 to 8.93 passes a second: 16 to 37 % of its arithmetic" in ran.err
    found = shell("plan", "size", "--model", config, "--method", "inference", "--gpu", "RTX 4090", "--json").json
    assert (found["params"], found["network"]["kind"]) == (2_567_463_684, "UNet2DConditionModel")
    assert found["fits"][0]["passes_per_s"] == pytest.approx([3.92, 8.93], abs=0.01)
    ran = shell("plan", "fit", "--size-of", config, "--task", "inference", "--price", "RTX 4090=0.4")
    assert (ran.code, "use --vram 5.3 without --task" in ran.err) == (2, True)
    other = tmp_path / "config.json"
    other.write_text('{"_class_name": "HunyuanDiT2DModel"}')
    ran = shell("plan", "size", "--model", str(other))
    assert (ran.code, "HunyuanDiT2DModel" in ran.err) == (2, True)
