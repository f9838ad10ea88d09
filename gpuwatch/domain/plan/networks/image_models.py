"""Image encoders (DINOv2, CLIP, SigLIP, ConvNeXt, Swin), as transformers defines them. Pure.

Sources: Oquab et al. (DINOv2, 2023), Radford et al. (CLIP, 2021), Zhai et al. (SigLIP, 2023), Liu et al. (ConvNeXt,
2022; Swin, 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuwatch.domain.plan.networks.config_values import NetworkConfig
from gpuwatch.domain.plan.networks.network_shape import (
    NetworkBlock,
    NetworkFamily,
    NetworkShape,
    activation,
    attention,
    conv,
    encoder_layer,
    joined,
    kept,
    linear,
    norm,
    side_by_side,
)

_IMAGE: Final = 224  # pixels, where a config does not say it


def dinov2_shape(config: NetworkConfig) -> NetworkShape:
    """DINOv2, whose layers scale what they add. Raises ValueError."""
    width, side = config.whole("hidden_size", 768), config.whole("image_size", _IMAGE)
    patch, ratio = config.whole("patch_size", 14), config.whole("mlp_ratio", 4)
    tokens = (side // patch) ** 2 + 1
    start = [conv(config.whole("num_channels", 3), width, patch * patch, tokens - 1)]
    start.append(NetworkBlock(params=width * (tokens + 2)))  # positions, class and mask
    scaled = NetworkBlock(params=2 * width, kept=2 * width * tokens)
    if config.fields.get("use_swiglu_ffn"):
        inner = (ratio * width * 2 // 3 + 7) // 8 * 8
        fed = [norm(width, tokens), linear(width, 2 * inner, tokens), activation(2 * inner, tokens)]
        fed += [kept(inner * tokens), linear(inner, width, tokens)]
        attended = [norm(width, tokens), side_by_side([linear(width, width, tokens)] * 3)]
        layer = joined([*attended, attention(width, tokens), linear(width, width, tokens), *fed, scaled])
    else:
        layer = joined([encoder_layer(width, ratio * width, tokens), scaled])
    end = [norm(width, tokens)]
    if "ForImageClassification" in str(config.fields.get("architectures")):
        end.append(linear(2 * width, _classes(config), 1))
    blocks = (joined(start), *[layer] * config.whole("num_hidden_layers", 12), joined(end))
    return _image("DINOv2", side, blocks, NetworkFamily.VISION_TRANSFORMER)


def clip_shape(config: NetworkConfig) -> NetworkShape:
    """CLIP: an image and its text. Raises ValueError."""
    text, vision = _part(config, "text_config"), _part(config, "vision_config")
    out = config.whole("projection_dim", 512)
    ends = [NetworkBlock(params=1), linear(vision.whole("hidden_size", 768), out, 1, bias=False)]
    ends.append(linear(text.whole("hidden_size", 512), out, 1, bias=False))
    blocks = (*_clip_text(text), *_clip_vision(vision), joined(ends))
    words = text.whole("max_position_embeddings", 77)
    return _pair("CLIP", vision.whole("image_size", _IMAGE), words, blocks)


def clip_text_shape(config: NetworkConfig) -> NetworkShape:
    """CLIP's text encoder alone, as diffusion models have it. Raises ValueError."""
    width, blocks = config.whole("hidden_size", 512), _clip_text(config)
    if "WithProjection" in str(config.fields.get("architectures")):
        blocks.append(linear(width, config.whole("projection_dim", 512), 1, bias=False))
    return NetworkShape(
        kind="CLIP's text encoder",
        family=NetworkFamily.VISION_TRANSFORMER,
        sample="texts",
        unit=f"a text of {config.whole('max_position_embeddings', 77)} words",
        blocks=tuple(blocks),
        source="transformers' modules",
    )


def clip_vision_shape(config: NetworkConfig) -> NetworkShape:
    """CLIP's image encoder alone. Raises ValueError."""
    width, blocks = config.whole("hidden_size", 768), _clip_vision(config)
    if "WithProjection" in str(config.fields.get("architectures")):
        blocks.append(linear(width, config.whole("projection_dim", 512), 1, bias=False))
    side = config.whole("image_size", _IMAGE)
    return _image("CLIP's image encoder", side, tuple(blocks), NetworkFamily.VISION_TRANSFORMER)


def siglip_shape(config: NetworkConfig) -> NetworkShape:
    """SigLIP: an image and its text. Raises ValueError."""
    text, vision = _part(config, "text_config"), _part(config, "vision_config")
    width, words = text.whole("hidden_size", 768), text.whole("max_position_embeddings", 64)
    start = NetworkBlock(params=width * (text.whole("vocab_size", 32_000) + words))
    layer = encoder_layer(width, text.whole("intermediate_size", 3072), words)
    end = joined([norm(width, words), linear(width, text.whole("projection_size", width), 1), NetworkBlock(params=2)])
    blocks = (start, *[layer] * text.whole("num_hidden_layers", 12), end, *_siglip_vision(vision))
    return _pair("SigLIP", vision.whole("image_size", _IMAGE), words, blocks)


def siglip_vision_shape(config: NetworkConfig) -> NetworkShape:
    """SigLIP's image encoder alone. Raises ValueError."""
    side, blocks = config.whole("image_size", _IMAGE), _siglip_vision(config)
    return _image("SigLIP's image encoder", side, tuple(blocks), NetworkFamily.VISION_TRANSFORMER)


def convnext_shape(config: NetworkConfig) -> NetworkShape:
    """ConvNeXt. Raises ValueError."""
    sizes, depths = config.wholes("hidden_sizes", [96, 192, 384, 768]), config.wholes("depths", [3, 3, 9, 3])
    if len(sizes) != len(depths):
        raise ValueError("hidden_sizes: expected one for each of depths")
    image, patch = config.whole("image_size", _IMAGE), config.whole("patch_size", 4)
    side = image // patch
    start = conv(config.whole("num_channels", 3), sizes[0], patch * patch, side**2, stride=patch * patch)
    blocks = [joined([start, norm(sizes[0], side**2)])]
    for stage, (width, depth) in enumerate(zip(sizes, depths, strict=True)):
        if stage:
            before = norm(sizes[stage - 1], side**2)
            side //= 2
            blocks.append(joined([before, conv(sizes[stage - 1], width, 4, side**2, stride=4)]))
        blocks += [_convnext_layer(width, side**2)] * depth
    blocks.append(joined([norm(sizes[-1], 1), linear(sizes[-1], _classes(config), 1)]))
    return _image("ConvNeXt", image, tuple(blocks), NetworkFamily.CONVOLUTIONAL)


def _convnext_layer(width: int, area: int) -> NetworkBlock:
    by_channel = NetworkBlock(
        params=50 * width, macs=49.0 * width * area, inputs=width * area, kept=width * area
    )  # 7 × 7 of each channel
    fed = [linear(width, 4 * width, area), activation(4 * width, area), linear(4 * width, width, area)]
    return joined([by_channel, norm(width, area), *fed, NetworkBlock(params=width, kept=width * area)])


def swin_shape(config: NetworkConfig) -> NetworkShape:
    """Swin: attention within windows. Raises ValueError."""
    depths, heads = config.wholes("depths", [2, 2, 6, 2]), config.wholes("num_heads", [3, 6, 12, 24])
    if len(heads) != len(depths):
        raise ValueError("num_heads: expected one for each of depths")
    image, patch = config.whole("image_size", _IMAGE), config.whole("patch_size", 4)
    width, window, side = config.whole("embed_dim", 96), config.whole("window_size", 7), image // patch
    ratio = config.whole("mlp_ratio", 4)
    start = conv(config.whole("num_channels", 3), width, patch * patch, side**2, stride=patch * patch)
    blocks = [joined([start, norm(width, side**2)])]
    for stage, (depth, count) in enumerate(zip(depths, heads, strict=True)):
        if stage:
            side //= 2
            merged = [norm(4 * width, side**2), linear(4 * width, 2 * width, side**2, bias=False)]
            blocks.append(joined(merged))
            width *= 2
        blocks += [_swin_layer(width, side**2, min(window, side), count, ratio)] * depth
    blocks.append(joined([norm(width, side**2), linear(width, _classes(config), 1)]))
    return _image("Swin", image, tuple(blocks), NetworkFamily.VISION_TRANSFORMER)


def _swin_layer(width: int, area: int, window: int, heads: int, ratio: int) -> NetworkBlock:
    """Plain attention within a window keeps its shares in 32 and 16 bits; windows are copies of the norm's result."""
    attended = NetworkBlock(
        params=(2 * window - 1) ** 2 * heads,
        macs=2.0 * width * area * window**2,
        kept=(3 * width + 3 * heads * window**2) * area,
    )
    fed = [norm(width, area), linear(width, ratio * width, area), activation(ratio * width, area)]
    matrices = side_by_side([linear(width, width, area)] * 3)
    parts = [norm(width, area), matrices, attended, linear(width, width, area), *fed]
    return joined([*parts, linear(ratio * width, width, area)])


def _clip_text(config: NetworkConfig) -> list[NetworkBlock]:
    width, words = config.whole("hidden_size", 512), config.whole("max_position_embeddings", 77)
    start = NetworkBlock(params=width * (config.whole("vocab_size", 49_408) + words))
    layer = _clip_layer(config, width, config.whole("intermediate_size", 2048), words)
    return [start, *[layer] * config.whole("num_hidden_layers", 12), norm(width, words)]


def _clip_vision(config: NetworkConfig) -> list[NetworkBlock]:
    width, patch = config.whole("hidden_size", 768), config.whole("patch_size", 32)
    tokens = (config.whole("image_size", _IMAGE) // patch) ** 2 + 1
    start = [conv(config.whole("num_channels", 3), width, patch * patch, tokens - 1, bias=False)]
    start += [NetworkBlock(params=width * (tokens + 1)), norm(width, tokens)]
    layer = _clip_layer(config, width, config.whole("intermediate_size", 3072), tokens)
    return [joined(start), *[layer] * config.whole("num_hidden_layers", 12), norm(width, 1)]


def _clip_layer(config: NetworkConfig, width: int, inner: int, tokens: int) -> NetworkBlock:
    """OpenAI's activation is a product, x × sigmoid(1.702 x), which keeps both factors."""
    more = inner * tokens if config.fields.get("hidden_act", "quick_gelu") == "quick_gelu" else 0
    return joined([encoder_layer(width, inner, tokens), kept(more)])


def _siglip_vision(config: NetworkConfig) -> list[NetworkBlock]:
    """Its result is an attention of one query to all patches."""
    width, patch = config.whole("hidden_size", 768), config.whole("patch_size", 16)
    inner, tokens = config.whole("intermediate_size", 3072), (config.whole("image_size", _IMAGE) // patch) ** 2
    start = conv(config.whole("num_channels", 3), width, patch * patch, tokens)
    pooled = [NetworkBlock(params=width), linear(width, width, 1), side_by_side([linear(width, width, tokens)] * 2)]
    pooled += [attention(width, 1, tokens), linear(width, width, 1), norm(width, 1)]
    pooled += [linear(width, inner, 1), activation(inner, 1), linear(inner, width, 1)]
    layer = encoder_layer(width, inner, tokens)
    layers = [layer] * config.whole("num_hidden_layers", 12)
    return [joined([start, NetworkBlock(params=width * tokens)]), *layers, joined([norm(width, tokens), *pooled])]


def _part(config: NetworkConfig, name: str) -> NetworkConfig:
    fields: Any = config.fields.get(name) or {}
    if not isinstance(fields, Mapping):
        raise ValueError(f"{name}: expected a table")  # noqa: TRY004
    return NetworkConfig(fields)


def _classes(config: NetworkConfig) -> int:
    return len(config.fields.get("id2label") or ()) or 1000


def _image(kind: str, side: int, blocks: tuple[NetworkBlock, ...], family: NetworkFamily) -> NetworkShape:
    unit = f"an image of {side} × {side} pixels"
    return NetworkShape(kind=kind, family=family, unit=unit, blocks=blocks, source="transformers' modules")


def _pair(kind: str, side: int, words: int, blocks: tuple[NetworkBlock, ...]) -> NetworkShape:
    return NetworkShape(
        kind=kind,
        family=NetworkFamily.VISION_TRANSFORMER,
        sample="pairs",
        unit=f"an image of {side} × {side} pixels and a text of {words} words",
        blocks=blocks,
        source="transformers' modules",
    )
