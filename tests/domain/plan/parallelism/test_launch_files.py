"""The files that start a plan: by the packages that read them, else by the keys that these document."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuwatch.app.plan.machines.parallel_plan import ParallelPlan, write_files
from gpuwatch.errors import UsageError
from gpuwatch.testing.suite import case
from tests.checkout import ROOT
from tests.domain.plan.parallelism.test_layout import plan

KEYS: Any = json.loads((ROOT / "tests/recorded/launch-files/keys.json").read_text())
PLANS = (
    plan("8x H100 SXM", "8B", method="full", batch=32),
    plan("8x RTX 4090", "8B", method="qlora", batch=8),
    plan("32x A100 SXM 80GB", "13B", method="full", batch=64, machine="p4de.24xlarge"),
    plan("64x H100 SXM", "70B", method="full", batch=64, machine="p5.48xlarge"),
    plan("16x H100 SXM", "405B", method="inference", precision="fp8", network_gbps=100, batch=2),
)


@pytest.mark.parametrize("found", PLANS, ids=lambda found: f"{found.group.count}-{found.work.model.name}")
def test_every_key_is_one_that_the_packages_document(found: ParallelPlan) -> None:
    accelerate, deepspeed = KEYS["accelerate"], KEYS["deepspeed"]
    for name, text in found.files.items():
        if name.endswith(".yaml"):
            config = yaml.safe_load(text)
            assert set(config) <= set(accelerate["top"]), name
            assert config["distributed_type"] in accelerate["distributed_type"]
            assert config["num_processes"] == found.group.count
            for part in ("fsdp_config", "megatron_lm_config", "deepspeed_config"):
                assert set(config.get(part, {})) <= set(accelerate[part]), name
        elif name.endswith(".json"):
            config = json.loads(text)
            assert set(config) <= set(deepspeed["top"])
            assert set(config["zero_optimization"]) <= set(deepspeed["zero_optimization"])
            micro, steps = config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]
            assert config["train_batch_size"] == micro * steps * found.group.count == found.work.batch
        else:
            subprocess.run(["sh", "-n"], input=text.encode(), check=True)


@pytest.mark.skipif(find_spec("accelerate") is None, reason="without Accelerate, which needs PyTorch")
def test_accelerate_loads_its_files(tmp_path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file  # type: ignore[import-not-found]

    for number, found in enumerate(PLANS):
        for path in write_files(found, tmp_path / str(number)):
            if path.suffix == ".yaml":
                assert load_config_from_file(str(path)).num_processes == found.group.count


def test_the_commands_of_several_machines_ask_for_rank_and_head(tmp_path: Path) -> None:
    fake = tmp_path / "accelerate"
    fake.write_text('#!/bin/sh\necho "$@"\n')
    fake.chmod(0o755)
    (script,) = [path for path in write_files(PLANS[3], tmp_path / "run") if path.name == "train.sh"]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    ran = subprocess.run([script, "train.py"], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert "number of this machine" in ran.stderr
    ran = subprocess.run(
        [script, "train.py", "--lr", "1"], env=env | {"RANK": "3", "HEAD": "10.0.0.1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.stdout.split()[-7:] == ["--machine_rank", "3", "--main_process_ip", "10.0.0.1", "train.py", "--lr", "1"]


def files(found: ParallelPlan) -> dict[str, Any]:
    """The files, parsed."""
    return {name: yaml.safe_load(text) for name, text in found.files.items() if not name.endswith(".sh")}


def test_the_files_train_with_the_batch_that_was_asked_for() -> None:
    """Micro-batch × passes × replicas is the batch, for batches that no power of two divides."""
    for batch in (8, 12, 24, 40, 56, 120):
        for keys in ({}, {"micro_batch": 5}, {"micro_batch": 1}, {"context": 1024}):
            with case((batch, keys)):
                found = plan("8x H100 SXM", "8B", method="full", batch=batch, **keys)
                for one in found.layouts:
                    assert one.micro * one.passes * one.data == batch
                written = files(found).get("deepspeed.json")
                assert written is None or written["train_batch_size"] == batch


def test_megatron_gets_each_degree_and_no_context_parallelism() -> None:
    """Accelerate 1.15.0 sets a context parallelism of 2 where none is stated."""
    found = plan("64x H100 SXM", "70B", method="full", batch=64, network_gbps=3200)
    best, config = found.best, files(found)["accelerate-megatron.yaml"]["megatron_lm_config"]
    assert best is not None
    assert config["megatron_lm_context_parallel_size"] == 1
    assert config["megatron_lm_num_micro_batches"] == best.passes
    assert config["megatron_lm_recompute_granularity"] == "full"
    assert "megatron_lm_decoder_last_pipeline_num_layers" not in config
    kept = plan("64x H100 SXM", "70B", method="full", batch=64, network_gbps=3200, recompute=False, context=512)
    config = files(kept)["accelerate-megatron.yaml"]["megatron_lm_config"]
    assert config["megatron_lm_recompute_granularity"] == "selective"


def test_layers_that_do_not_divide_leave_a_shorter_last_stage() -> None:
    """126 layers in 8 stages: seven of 16 and one of 14."""
    found = plan("1024x H100 SXM", "405B", method="full", batch=256, network_gbps=3200)
    best = found.best
    assert best is not None
    config = files(found)["accelerate-megatron.yaml"]["megatron_lm_config"]
    stages, last = config["megatron_lm_pp_degree"], config["megatron_lm_decoder_last_pipeline_num_layers"]
    assert stages == best.pipeline > 1
    assert (126 - last) % (stages - 1) == 0
    assert 0 < last < (126 - last) // (stages - 1)


def test_one_card_is_started_without_a_group() -> None:
    """Accelerate refuses MULTI_GPU with one process."""
    assert files(plan("1x H100 SXM", "8B", method="lora"))["accelerate-ddp.yaml"]["distributed_type"] == "NO"
    assert files(plan("2x H100 SXM", "8B", method="lora"))["accelerate-ddp.yaml"]["distributed_type"] == "MULTI_GPU"


def test_weights_of_few_bits_are_computed_with_in_bf16() -> None:
    for method, precision, bf16, mixed in (
        ("full", "fp8", True, "fp8"), ("lora", "int8", True, "bf16"), ("qlora", "bf16", True, "bf16"),
        ("full", "fp16", False, "fp16"), ("full", "fp32", False, "no"),
    ):  # fmt: skip
        with case((method, precision)):
            written = files(plan("8x H100 SXM", "1B", method=method, precision=precision, batch=8))
            assert written["deepspeed.json"]["bf16"]["enabled"] is bf16
            assert written["deepspeed.json"]["fp16"]["enabled"] is (precision == "fp16")
            (plain,) = [one for name, one in written.items() if name in ("accelerate-ddp.yaml", "accelerate-fsdp.yaml")]
            assert plain["mixed_precision"] == mixed


def test_adapters_and_offload_are_started_by_deepspeed_at_a_stage_that_does_it() -> None:
    """Accelerate's Megatron-LM trains all weights; DeepSpeed moves optimizers from stage 1 on, weights in stage 3."""
    for method in ("lora", "qlora"):
        assert {one.model for one in plan("8x H100 SXM", "70B", method=method).layouts} == {1}
    moved = plan("1x H100 SXM", "8B", method="full", offload=True)
    assert {one.zero for one in moved.layouts} == {1, 2, 3}
    assert files(moved)["deepspeed.json"]["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert {one.zero for one in plan("2x H100 SXM", "70B", method="lora", offload=True).layouts} == {3}


def test_a_server_gets_the_bits_that_were_planned() -> None:
    for precision, part in (
        ("fp8", "--quantization fp8"), ("fp16", "--dtype float16"), ("int4", "# planned for int4 weights"),
    ):  # fmt: skip
        text = plan("4x H100 SXM", "70B", method="inference", precision=precision).files["serve.sh"]
        assert part in text
    published = plan("8x H200 SXM", "DeepSeek-V3", method="inference").files["serve.sh"]
    assert "--quantization" not in published


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write_files(PLANS[0], tmp_path)
    with pytest.raises(UsageError, match="exists: name another folder"):
        write_files(PLANS[0], tmp_path)
