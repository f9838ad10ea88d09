"""Weights, arithmetic and kept values of networks, compared with PyTorch's own count of transformers' and diffusers'.

`judged.json` was written with the versions that it names, on the CPU, of models made from these configs with random
weights in bf16: parameters; operations by `torch.utils.flop_counter`, forward and with the backward pass; and the bytes
that `torch.autograd.graph.saved_tensors_hooks` saw, each storage once, without weights; "checkpointed" with
`enable_gradient_checkpointing`. Dropout is 0, as its masks depend on the library.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.domain.plan.networks.test_networks import network

JUDGED = json.loads((Path(__file__).parent / "judged.json").read_text())
GROUPED = {"ConvNeXt", "wav2vec 2.0"}  # PyTorch's count of a backward pass leaves out that channels are in groups
CASES: list[dict[str, Any]] = JUDGED["cases"]


def one_of(case: dict[str, Any]) -> Any:
    return pytest.param(case, id=case["name"])


@pytest.mark.parametrize("case", [one_of(one) for one in CASES])
def test_a_network_has_the_weights_arithmetic_and_kept_values_that_pytorch_counts(case: dict[str, Any]) -> None:
    shape, batch = network(case["config"]), case["batch"]
    assert shape.params == case["params"]
    assert shape.flop * batch == pytest.approx(case["forward"], rel=0.001)
    if shape.kind not in GROUPED:
        assert 2.85 < case["train"] / case["forward"] < 3.2, "a step of training is three passes"
    words = shape.blocks[-1].kept if shape.writes else 0  # of the loss, which the judge did not compute
    assert 2 * batch * (shape.trained_values(recompute=False) - words) == pytest.approx(case["saved"], rel=0.1)


@pytest.mark.parametrize("case", [one_of(one) for one in CASES if one.get("checkpointed", 0) > 50e6])
def test_with_checkpointing_the_inputs_of_all_blocks_are_kept(case: dict[str, Any]) -> None:
    """The judge's moment is before the backward pass: the one whole block that it computes again comes on top."""
    shape, batch = network(case["config"]), case["batch"]
    inputs = 2 * batch * sum(block.inputs for block in shape.blocks)
    assert 0.8 < inputs / case["checkpointed"] < 1.02
    assert 2 * batch * shape.trained_values(recompute=True) > inputs


def test_the_judge_is_named_with_its_versions() -> None:
    assert set(JUDGED["versions"]) == {"torch", "transformers", "diffusers"}
    assert len({case["config"].get("_class_name") or case["config"]["model_type"] for case in CASES}) >= len(CASES) // 2
