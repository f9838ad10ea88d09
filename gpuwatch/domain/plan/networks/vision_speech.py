"""Vision (ViT, ResNet) and speech encoders (wav2vec 2.0, HuBERT, Whisper), as transformers defines them. Pure.

Sources: Dosovitskiy et al. (ViT, 2020), He et al. (ResNet, 2015), Baevski et al. (wav2vec 2.0, 2020), Hsu et al.
(HuBERT, 2021), Radford et al. (Whisper, 2022).
"""

from __future__ import annotations

from collections.abc import Iterator
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
    encoder_layer,
    joined,
    kept,
    linear,
    norm,
)

_RATE: Final = 16_000  # samples a second
_SECONDS: Final = 10  # of one sample of speech, for wav2vec 2.0 and HuBERT
_IMAGE: Final = 224  # pixels, where ResNet's config does not say it
_FEATURES: Final = [512] * 7  # of wav2vec 2.0's convolutions
_KERNELS: Final = [10, 3, 3, 3, 3, 2, 2]
_STRIDES: Final = [5, 2, 2, 2, 2, 2, 2]


def vit_shape(config: NetworkConfig) -> NetworkShape:
    """ViT, DeiT: patches of an image through an encoder. Raises ValueError."""
    width, side = config.whole("hidden_size", 768), config.whole("image_size", _IMAGE)
    patch, channels = config.whole("patch_size", 16), config.whole("num_channels", 3)
    patches = (side // patch) ** 2
    extra = 2 if config.fields.get("model_type") == "deit" else 1
    tokens, inner = patches + extra, config.whole("intermediate_size", 3072)
    start = joined([conv(channels, width, patch * patch, patches), NetworkBlock(params=width * (tokens + extra))])
    layer, classes = encoder_layer(width, inner, tokens), len(config.fields.get("id2label") or ()) or 1000
    heads = 2 if "WithTeacher" in str(config.fields.get("architectures")) else 1  # of DeiT's two tokens
    end = joined([norm(width, tokens), *[linear(width, classes, 1)] * heads])
    return NetworkShape(
        kind="ViT",
        family=NetworkFamily.VISION_TRANSFORMER,
        unit=f"an image of {side} × {side} pixels",
        blocks=(start, *[layer] * config.whole("num_hidden_layers", 12), end),
        source="transformers' modules; Dosovitskiy et al. (2020)",
    )


def resnet_shape(config: NetworkConfig) -> NetworkShape:
    """ResNet of basic or bottleneck layers. Raises ValueError: another kind of layer."""
    sizes, depths = config.wholes("hidden_sizes", [256, 512, 1024, 2048]), config.wholes("depths", [3, 4, 6, 3])
    kind = config.fields.get("layer_type", "bottleneck")
    if kind not in {"basic", "bottleneck"} or len(sizes) != len(depths):
        raise ValueError(f"layer_type: {str(kind)[:40]} is not understood; expected basic or bottleneck")
    before, side = config.whole("embedding_size", 64), _IMAGE // 2
    pooled = kept(before * side**2 + 4 * before * (side // 2) ** 2)  # what is pooled, and 8-byte places of its largest
    blocks = [joined([_convolved(config.whole("num_channels", 3), before, 49, side**2, stride=4), pooled])]
    side //= 2
    for stage, (width, depth) in enumerate(zip(sizes, depths, strict=True)):
        for layer in range(depth):
            stride = 2 if layer == 0 and (stage or config.fields.get("downsample_in_first_stage")) else 1
            make = _bottleneck if kind == "bottleneck" else _basic
            blocks.append(make(before, width, side, stride))
            before, side = width, side // stride
    classes = len(config.fields.get("id2label") or ()) or 1000
    blocks.append(linear(before, classes, 1))
    return NetworkShape(
        kind="ResNet",
        family=NetworkFamily.CONVOLUTIONAL,
        unit=f"an image of {_IMAGE} × {_IMAGE} pixels",
        blocks=tuple(blocks),
        source="transformers' modules; He et al. (2015)",
    )


def _convolved(inputs: int, outputs: int, kernel: int, area: int, stride: int = 1) -> NetworkBlock:
    """A convolution without bias, its norm, and its ReLU."""
    return joined([conv(inputs, outputs, kernel, area, bias=False, stride=stride), norm(outputs, area)])


def _bottleneck(inputs: int, outputs: int, side: int, stride: int) -> NetworkBlock:
    reduced, after = outputs // 4, (side // stride) ** 2
    parts = [
        _convolved(inputs, reduced, 1, side**2),
        _convolved(reduced, reduced, 9, after, stride**2),
        _convolved(reduced, outputs, 1, after),
    ]
    return joined(parts + _shortcut(inputs, outputs, after, stride))


def _basic(inputs: int, outputs: int, side: int, stride: int) -> NetworkBlock:
    after = (side // stride) ** 2
    parts = [_convolved(inputs, outputs, 9, after, stride**2), _convolved(outputs, outputs, 9, after)]
    return joined(parts + _shortcut(inputs, outputs, after, stride))


def _shortcut(inputs: int, outputs: int, area: int, stride: int) -> list[NetworkBlock]:
    if inputs == outputs and stride == 1:
        return []
    read = conv(inputs, outputs, 1, area, bias=False, stride=stride**2)
    return [msgspec.structs.replace(read, kept=0), norm(outputs, area)]  # its input is kept by the block's first part


def wav2vec_shape(config: NetworkConfig) -> NetworkShape:
    """wav2vec 2.0 and HuBERT: convolutions over samples, then an encoder. Raises ValueError."""
    width, inner = config.whole("hidden_size", 768), config.whole("intermediate_size", 3072)
    blocks, frames, last = list(_samples(config)), _frames(config), config.wholes("conv_dim", _FEATURES)[-1]
    groups, kernel = config.whole("num_conv_pos_embedding_groups", 16), config.whole("num_conv_pos_embeddings", 128)
    positions = NetworkBlock(
        params=width * width // groups * kernel + width + kernel,
        macs=width * width // groups * kernel * frames,
        inputs=width * frames,
        kept=2 * width * frames,
    )
    blocks += [joined([norm(last, frames), linear(last, width, frames)]), positions]
    blocks += [encoder_layer(width, inner, frames)] * config.whole("num_hidden_layers", 12)
    blocks.append(joined([norm(width, frames), NetworkBlock(params=width)]))  # and the embedding of masked frames
    return NetworkShape(
        kind="wav2vec 2.0",
        family=NetworkFamily.SPEECH,
        sample="sounds",
        unit=f"{_SECONDS} s of sound",
        blocks=tuple(blocks),
        source="transformers' modules; Baevski et al. (2020)",
    )


def _frames(config: NetworkConfig) -> int:
    length = _RATE * _SECONDS
    for kernel, stride in zip(
        config.wholes("conv_kernel", _KERNELS), config.wholes("conv_stride", _STRIDES), strict=True
    ):
        length = (length - kernel) // stride + 1
    return length


def _samples(config: NetworkConfig) -> Iterator[NetworkBlock]:
    """The convolutions; a group norm after the first one, or a layer norm after each."""
    before, length = 1, _RATE * _SECONDS
    bias, all_norms = bool(config.fields.get("conv_bias")), config.fields.get("feat_extract_norm") == "layer"
    dims = config.wholes("conv_dim", _FEATURES)
    kernels, strides = config.wholes("conv_kernel", _KERNELS), config.wholes("conv_stride", _STRIDES)
    for at, (width, kernel, stride) in enumerate(zip(dims, kernels, strides, strict=True)):
        length = (length - kernel) // stride + 1
        parts = [conv(before, width, kernel, length, bias=bias, stride=stride)]
        if all_norms or at == 0:
            parts.append(norm(width, length))
        yield joined([*parts, activation(width, length)])
        before = width


def whisper_shape(config: NetworkConfig) -> NetworkShape:
    """Whisper: 30 s of sound through the encoder, and as many tokens as it may write for them. Raises ValueError."""
    width, bins = config.whole("d_model", 384), config.whole("num_mel_bins", 80)
    frames, words = config.whole("max_source_positions", 1500), config.whole("max_target_positions", 448)
    start = [conv(bins, width, 3, 2 * frames), activation(width, 2 * frames), conv(width, width, 3, frames, stride=2)]
    start.append(NetworkBlock(params=width * frames))
    encoder = _without_key_bias(encoder_layer(width, config.whole("encoder_ffn_dim", 1536), frames), width)
    own = _without_key_bias(encoder_layer(width, config.whole("decoder_ffn_dim", 1536), words), width)
    read = joined([linear(width, width, frames, bias=False), linear(width, width, frames)])
    read = msgspec.structs.replace(read, kept=0)  # the encoder's output is kept once for all layers
    across = [norm(width, words), linear(width, width, words), read, attention(width, words, frames)]
    across.append(linear(width, width, words))
    vocab = config.whole("vocab_size", 51_865)
    embedding = NetworkBlock(params=width * (vocab + words))
    head = NetworkBlock(macs=float(width * vocab * words), kept=vocab * words)
    blocks = [joined(start), *[encoder] * config.whole("encoder_layers", 4), norm(width, frames), embedding]
    blocks += [joined([own, *across])] * config.whole("decoder_layers", 4)
    return NetworkShape(
        kind="Whisper",
        family=NetworkFamily.SPEECH,
        sample="sounds",
        writes=True,
        unit=f"30 s of sound and {words} tokens",
        blocks=(*blocks, norm(width, words), head),
        alive=width * frames,
        source="transformers' modules; Radford et al. (2022)",
    )


def _without_key_bias(layer: NetworkBlock, width: int) -> NetworkBlock:
    return joined([layer, NetworkBlock(params=-width)])
