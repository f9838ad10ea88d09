"""Diffusion, vision and speech models by their config.json, compared with what was published about them."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.domain.plan.architectures.language_models import model_from_config
from gpuwatch.domain.plan.memory_need import GIB_GB, memory_need
from gpuwatch.domain.plan.networks.network_config import network_of
from gpuwatch.domain.plan.networks.network_shape import NetworkShape
from gpuwatch.domain.plan.roofline import Precision, TrainingMethod
from gpuwatch.domain.plan.workload import Workload

CROSS, PLAIN = "CrossAttn{}Block2D", "{}Block2D"


def unet(kinds: str, **more: Any) -> dict[str, Any]:
    """`kinds`: "x" with attention to the prompt, "-" without, from the first block down."""
    names = [CROSS if kind == "x" else PLAIN for kind in kinds]
    downs, ups = [one.format("Down") for one in names], [one.format("Up") for one in reversed(names)]
    return {
        "_class_name": "UNet2DConditionModel", "in_channels": 4, "out_channels": 4, "layers_per_block": 2,
        "down_block_types": downs, "up_block_types": ups,
    } | more  # fmt: skip


SD_15 = unet("xxx-", block_out_channels=[320, 640, 1280, 1280], cross_attention_dim=768, sample_size=64)
SDXL = unet(
    "-xx", block_out_channels=[320, 640, 1280], cross_attention_dim=2048, transformer_layers_per_block=[1, 2, 10],
    projection_class_embeddings_input_dim=2816, sample_size=128,
)  # fmt: skip
FLUX = {
    "_class_name": "FluxTransformer2DModel", "num_layers": 19, "num_single_layers": 38, "attention_head_dim": 128,
    "num_attention_heads": 24, "in_channels": 64, "joint_attention_dim": 4096, "pooled_projection_dim": 768,
    "guidance_embeds": True,
}  # fmt: skip
WHISPER = {
    "model_type": "whisper", "d_model": 1280, "num_mel_bins": 80, "encoder_layers": 32, "decoder_layers": 32,
    "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "decoder_attention_heads": 20, "vocab_size": 51865,
}  # fmt: skip
LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}


def network(fields: dict[str, Any]) -> NetworkShape:
    found = network_of(fields)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("fields", "published"),
    [
        # the checkpoints' own counts (forums.fast.ai/t/101515; "unet params" of a log of DreamBooth; the metadata of
        # FLUX.1-dev's safetensors); the papers round them: 860 M, 2.6 B, 12 B
        (SD_15, 859_520_964),
        (SDXL, 2_567_463_684),
        (FLUX, 11_901_408_320),
        ({"model_type": "vit"}, 86_567_656),  # `num_params` of torchvision: ViT-B/16, ViT-L/16, ResNet-50, ResNet-18
        ({"model_type": "vit", **LARGE}, 304_326_632),
        ({"model_type": "resnet"}, 25_557_032),
        ({"model_type": "resnet", "layer_type": "basic", "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]},
         11_689_512),
        ({"model_type": "wav2vec2"}, 94_371_712),  # Baevski et al.: 95 M and 317 M, with the heads of their training
        ({"model_type": "wav2vec2", "conv_bias": True, "feat_extract_norm": "layer", **LARGE}, 315_438_720),
        (WHISPER, 1_543_304_960),  # large-v2 on the hub; Radford et al.: 1,550 M
    ],
    ids=["SD 1.5", "SDXL", "Flux", "ViT-B", "ViT-L", "ResNet-50", "ResNet-18", "wav2vec 2.0", "its large", "Whisper"],
)  # fmt: skip
def test_their_weights_are_those_of_the_published_files_to_the_last_one(fields: dict[str, Any], published: int) -> None:
    assert network(fields).params == published


def test_their_arithmetic_is_what_was_published() -> None:
    """huggingface.co/datasets/diffusers/benchmarks, without attention's products; torchvision: 4.09 and 17.56 GMAC."""
    tokens, width = 4096 + 512, 3072
    assert network(FLUX).flop - 57 * 4 * tokens**2 * width == pytest.approx(59.52e12, rel=0.01)
    assert network(SDXL).flop == pytest.approx(5.979e12, rel=0.15)  # with attention's products
    assert network({"model_type": "resnet"}).flop / 2 == pytest.approx(4.09e9, rel=0.01)
    assert network({"model_type": "vit"}).flop / 2 == pytest.approx(17.56e9, rel=0.01)


def _work(fields: dict[str, Any], method: TrainingMethod = TrainingMethod.INFERENCE, **more: Any) -> Workload:
    return Workload(model=model_from_config(fields, "x"), method=method, **more)


def test_their_memory_in_inference_is_near_the_published_peak() -> None:
    """The same benchmarks: GiB that PyTorch allocated for one pass in bf16, 5.05 and 22.64."""
    for fields, gib in ((SDXL, 5.05), (FLUX, 22.64)):
        assert memory_need(_work(fields)).gb == pytest.approx(gib * GIB_GB, rel=0.05)


def test_training_keeps_the_blocks_or_their_inputs_and_more_images_take_more() -> None:
    full = memory_need(_work(SD_15, TrainingMethod.FULL, recompute=False, batch=4))
    less = memory_need(_work(SD_15, TrainingMethod.FULL, batch=4))
    one = memory_need(_work(SD_15, TrainingMethod.FULL, recompute=False))
    activations = [next(part.gb for part in need.parts if part.name == "activations") for need in (full, less, one)]
    assert activations[0] == pytest.approx(4 * activations[2])
    assert activations[1] < activations[0] / 3
    assert sum(part.gb for part in full.parts if part.name != "activations") == pytest.approx(0.8595 * 16, rel=0.01)


def test_what_is_not_understood_is_refused_by_name() -> None:
    cases = (
        ({"_class_name": "HunyuanDiT2DModel"}, "HunyuanDiT2DModel"),
        ({"model_type": "beit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
          "intermediate_size": 3072, "vocab_size": 8192, "image_size": 224, "patch_size": 16}, "model_type beit: this"),
        ({"model_type": "owlvit", "text_config": {"model_type": "owlvit_text_model"}, "vision_config": {}}, "owlvit"),
        ({"model_type": "grounding-dino", "text_config": {"model_type": "bert"}, "backbone_config": {}}, "grounding"),
        ({"model_type": "convbert2"}, "model_type convbert2: .*as a language model: num_hidden_layers"),
        (unet("xx", block_out_channels=[32, 64]) | {"up_block_types": ["UpBlock2D", "AttnUpBlock2D"]}, "AttnUpBlock2D"),
        ({"model_type": "resnet", "layer_type": "inverted"}, "inverted"),
        (SD_15 | {"block_out_channels": [320, 640]}, "block_out_channels"),
        (SDXL | {"transformer_layers_per_block": [1, 2]}, "transformer_layers_per_block"),
        (FLUX | {"num_layers": -1}, "num_layers"),
    )  # fmt: skip
    for fields, name in cases:
        with pytest.raises(ValueError, match=name):
            model_from_config(fields, "x")
    assert memory_need(_work(WHISPER, TrainingMethod.LORA)).gb > 3, "its decoder's and encoder's matrices are known"
    assert network_of({"model_type": "llama"}) is None
    assert memory_need(_work(SDXL, precision=Precision.FP32)).gb > 10
