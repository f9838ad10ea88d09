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


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write_files(PLANS[0], tmp_path)
    with pytest.raises(UsageError, match="exists: name another folder"):
        write_files(PLANS[0], tmp_path)
