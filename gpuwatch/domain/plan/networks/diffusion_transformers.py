"""The transformers of diffusion models, as diffusers defines them: Flux, SD 3 and 3.5, PixArt, DiT. Pure.

Sources: `FluxTransformer2DModel`, `SD3Transformer2DModel`, `PixArtTransformer2DModel` and `DiTTransformer2DModel` of
github.com/huggingface/diffusers; Esser et al. (SD 3, 2024), Chen et al. (PixArt, 2023), Peebles and Xie (DiT, 2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gpuwatch.domain.plan.networks.config_values import NetworkConfig
from gpuwatch.domain.plan.networks.network_shape import (
    NetworkBlock,
    NetworkFamily,
    NetworkShape,
    activation,
    attention,
    conv,
    joined,
    kept,
    linear,
    norm,
    side_by_side,
)

_FLUX_WORDS: Final = 512  # of T5, as published
_FLUX_SIDE: Final = 1024
_SD3_WORDS: Final = 77 + 256  # of CLIP and T5, as diffusers' pipeline passes them
_PIXART_WORDS: Final = 120  # of T5 (PixArt-α; Σ: up to 300)
_LATENT: Final = 8  # pixels of a side for one latent
_STEP: Final = 256  # channels of an embedded step


def flux_shape(config: NetworkConfig) -> NetworkShape:
    """The shape of Flux's transformer. Raises ValueError: a key is missing or impossible."""
    head = config.whole("attention_head_dim", 128)
    width = config.whole("num_attention_heads", 24) * head
    channels, pooled = config.whole("in_channels", 64), config.whole("pooled_projection_dim", 768)
    image = (_FLUX_SIDE // 16) ** 2  # latents of 8 × 8 pixels, in patches of 2 × 2
    ends = [linear(channels, width, image), linear(config.whole("joint_attention_dim", 4096), width, _FLUX_WORDS)]
    embeddings = 3 if config.fields.get("guidance_embeds") else 2
    for at in range(embeddings):  # of the step, the guidance and the prompt
        ends.append(_embedded(pooled if at == embeddings - 1 else _STEP, width))
    double = joined([_stream(width, tokens, head) for tokens in (image, _FLUX_WORDS)])
    double = _common([double, attention(width, image + _FLUX_WORDS)], width * (image + _FLUX_WORDS))
    blocks = [joined(ends), *[double] * config.whole("num_layers", 19)]
    blocks += [_flux_single(width, image + _FLUX_WORDS, head)] * config.whole("num_single_layers", 38)
    blocks.append(joined([linear(width, 2 * width, 1), linear(width, channels, image)]))
    return _transformer("FluxTransformer2DModel", _FLUX_SIDE, blocks, 2 * width * (image + _FLUX_WORDS))


def sd3_shape(config: NetworkConfig) -> NetworkShape:
    """The shape of the transformer of SD 3 and 3.5. Raises ValueError."""
    head, layers = config.whole("attention_head_dim", 64), config.whole("num_layers", 18)
    width = config.whole("num_attention_heads", 18) * head
    patch, side = config.whole("patch_size", 2), config.whole("sample_size", 128)
    channels, image = config.whole("in_channels", 16), (side // patch) ** 2
    norms, twice = head if config.fields.get("qk_norm") else 0, config.fields.get("dual_attention_layers") or ()
    if not isinstance(twice, (list, tuple)):
        raise ValueError("dual_attention_layers: expected a list of whole numbers")  # noqa: TRY004
    ends = [conv(channels, width, patch * patch, image), _embedded(_STEP, width)]
    ends.append(_embedded(config.whole("pooled_projection_dim", 2048), width))
    ends.append(linear(config.whole("joint_attention_dim", 4096), width, _SD3_WORDS))
    blocks = [joined(ends)]
    for at in range(layers):
        parts = [_stream(width, image, norms), attention(width, image + _SD3_WORDS)]
        if at < layers - 1:
            parts.append(_stream(width, _SD3_WORDS, norms))
        else:  # the words of the last layer are read only
            parts += [linear(width, 2 * width, 1), side_by_side([linear(width, width, _SD3_WORDS)] * 3)]
            parts += [norm(width, _SD3_WORDS, 0), kept(width * _SD3_WORDS), NetworkBlock(params=2 * norms)]
        if at in twice:
            parts += [linear(width, 3 * width, 1), *_attended(width, image, norms), attention(width, image)]
        blocks.append(_common(parts, width * (image + _SD3_WORDS)))
    out = patch * patch * config.whole("out_channels", 16)
    blocks.append(joined([norm(width, image, 0), linear(width, 2 * width, 1), linear(width, out, image)]))
    return _transformer("SD3Transformer2DModel", side * _LATENT, blocks, 2 * width * (image + _SD3_WORDS))


def pixart_shape(config: NetworkConfig) -> NetworkShape:
    """The shape of PixArt's transformer. Raises ValueError."""
    width = config.whole("num_attention_heads", 16) * config.whole("attention_head_dim", 72)
    side, patch = config.whole("sample_size", 128), config.whole("patch_size", 2)
    image, more = (side // patch) ** 2, config.fields.get("use_additional_conditions")
    ends = [conv(config.whole("in_channels", 4), width, patch * patch, image), _embedded(_STEP, width)]
    if more is True or (more is None and side == 128):  # of the resolution and the shape of the image
        ends += [_embedded(_STEP, width // 3)] * 2
    ends += [linear(width, 6 * width, 1), linear(config.whole("caption_channels", 4096), width, _PIXART_WORDS)]
    ends += [activation(width, _PIXART_WORDS), linear(width, width, _PIXART_WORDS)]
    words = side_by_side([linear(config.whole("cross_attention_dim", 1152), width, _PIXART_WORDS)] * 2)
    across = [linear(width, width, image), words, attention(width, image, _PIXART_WORDS), linear(width, width, image)]
    layer = joined(
        [
            *_attended(width, image, 0),
            attention(width, image),
            *across,
            *_fed(width, image),
            NetworkBlock(params=6 * width),
        ]
    )
    out = patch * patch * config.whole("out_channels", 8)
    end = joined(
        [norm(width, image, 0), kept(width * image), linear(width, out, image), NetworkBlock(params=2 * width)]
    )
    blocks = [joined(ends), *[layer] * config.whole("num_layers", 28), end]
    return _transformer("PixArtTransformer2DModel", side * _LATENT, blocks, 2 * width * image)


def dit_shape(config: NetworkConfig) -> NetworkShape:
    """The shape of DiT, whose layers each embed the step and the class. Raises ValueError."""
    width = config.whole("num_attention_heads", 16) * config.whole("attention_head_dim", 72)
    side, patch = config.whole("sample_size", 32), config.whole("patch_size", 2)
    image, classes = (side // patch) ** 2, config.whole("num_embeds_ada_norm", 1000)
    start = conv(config.whole("in_channels", 4), width, patch * patch, image)
    own = [_embedded(_STEP, width), NetworkBlock(params=(classes + 1) * width), linear(width, 6 * width, 1)]
    layer = joined([*_attended(width, image, 0), attention(width, image), *_fed(width, image), *own])
    out = patch * patch * config.whole("out_channels", 8)
    end = joined([linear(width, 2 * width, 1), norm(width, image, 0), kept(width * image), linear(width, out, image)])
    blocks = [start, *[layer] * config.whole("num_layers", 28), end]
    return _transformer("DiTTransformer2DModel", side * _LATENT, blocks, 2 * width * image)


def _transformer(kind: str, side: int, blocks: Sequence[NetworkBlock], alive: int) -> NetworkShape:
    return NetworkShape(
        kind=kind,
        family=NetworkFamily.DIFFUSION_TRANSFORMER,
        unit=f"an image of {side} × {side} pixels, one pass of a step",
        blocks=tuple(blocks),
        alive=alive,
        source="diffusers' modules",
    )


def _common(parts: Sequence[NetworkBlock], inputs: int) -> NetworkBlock:
    """A block that reads the image and the words."""
    return msgspec.structs.replace(joined(parts), inputs=inputs)


def _embedded(inputs: int, width: int) -> NetworkBlock:
    return joined([linear(inputs, width, 1), linear(width, width, 1)])


def _stream(width: int, tokens: int, norms: int) -> NetworkBlock:
    """The image or the words with weights of their own; their attention is common. `norms`: of queries and keys."""
    return joined([*_attended(width, tokens, norms), *_fed(width, tokens), linear(width, 6 * width, 1)])


def _attended(width: int, tokens: int, norms: int) -> Iterator[NetworkBlock]:
    """A norm that is scaled and shifted, queries, keys, values, and the gated result."""
    yield from (norm(width, tokens, 0), kept(width * tokens), side_by_side([linear(width, width, tokens)] * 3))
    yield from (_qk_norms(width, tokens, norms), linear(width, width, tokens), kept(width * tokens))


def _fed(width: int, tokens: int) -> Iterator[NetworkBlock]:
    """The feed-forward part: its norm is scaled and shifted, its result gated."""
    yield from (norm(width, tokens, 0), kept(width * tokens), linear(width, 4 * width, tokens))
    yield from (activation(4 * width, tokens), linear(4 * width, width, tokens), kept(width * tokens))


def _qk_norms(width: int, tokens: int, norms: int) -> NetworkBlock:
    """Norms of queries and keys: what comes in (in 16 and in 32 bits), and what is scaled."""
    return NetworkBlock(params=2 * norms, kept=8 * width * tokens if norms else 0)


def _flux_single(width: int, tokens: int, head: int) -> NetworkBlock:
    """Attention and feed-forward side by side."""
    matrices = [linear(width, width, tokens)] * 3 + [linear(width, 4 * width, tokens)]
    return joined(
        [
            *(norm(width, tokens, 0), kept(width * tokens), linear(width, 3 * width, 1), side_by_side(matrices)),
            *(_qk_norms(width, tokens, head), attention(width, tokens), kept(width * tokens)),
            *(activation(4 * width, tokens), linear(5 * width, width, tokens), kept(width * tokens)),
        ]
    )
