"""Which config.json describes a network of another kind than a language model, and its shape. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gpuwatch.domain.plan.networks.config_values import NetworkConfig
from gpuwatch.domain.plan.networks.diffusion import unet_shape
from gpuwatch.domain.plan.networks.diffusion_transformers import dit_shape, flux_shape, pixart_shape, sd3_shape
from gpuwatch.domain.plan.networks.image_models import (
    clip_shape,
    clip_text_shape,
    clip_vision_shape,
    convnext_shape,
    dinov2_shape,
    siglip_shape,
    siglip_vision_shape,
    swin_shape,
)
from gpuwatch.domain.plan.networks.network_shape import NetworkShape
from gpuwatch.domain.plan.networks.vision_speech import resnet_shape, vit_shape, wav2vec_shape, whisper_shape

_READERS: Final[Mapping[str, Callable[[NetworkConfig], NetworkShape]]] = {
    "UNet2DConditionModel": unet_shape,
    "FluxTransformer2DModel": flux_shape,
    "SD3Transformer2DModel": sd3_shape,
    "PixArtTransformer2DModel": pixart_shape,
    "DiTTransformer2DModel": dit_shape,
    "vit": vit_shape,
    "deit": vit_shape,
    "resnet": resnet_shape,
    "convnext": convnext_shape,
    "swin": swin_shape,
    "dinov2": dinov2_shape,
    "clip": clip_shape,
    "clip_text_model": clip_text_shape,
    "clip_vision_model": clip_vision_shape,
    "siglip": siglip_shape,
    "siglip_vision_model": siglip_vision_shape,
    "wav2vec2": wav2vec_shape,
    "hubert": wav2vec_shape,
    "whisper": whisper_shape,
}


def network_of(fields: Mapping[str, Any]) -> NetworkShape | None:
    """The network of a config.json; None: it describes a language model.

    Raises:
        ValueError: it is a part of a diffusion model that is not understood, or a key is missing or impossible.
    """
    made_by = fields.get("_class_name")
    kind = made_by if isinstance(made_by, str) else fields.get("model_type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is not None:
        return reader(NetworkConfig(fields))
    if isinstance(made_by, str):
        raise ValueError(unread_text("_class_name", made_by))  # noqa: TRY004
    return None


def unread_text(key: str, kind: str) -> str:
    """That there is no reader of a kind, and which kinds have one."""
    return f"{key} {kind[:60]}: this kind of network is not understood; known: {', '.join(sorted(_READERS))}"
