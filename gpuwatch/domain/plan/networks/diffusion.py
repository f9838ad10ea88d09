"""The denoisers of diffusion models, as diffusers defines them: UNets (SD 1.5, SDXL), and Flux's transformer. Pure.

Sources: `UNet2DConditionModel` and `FluxTransformer2DModel` of github.com/huggingface/diffusers; Rombach et al. (2022),
Podell et al. (SDXL, 2023). Text encoders and the VAE have a config.json of their own and are not counted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpuwatch.domain.plan.networks.config_values import NetworkConfig
from gpuwatch.domain.plan.networks.network_shape import (
    NetworkBlock,
    NetworkShape,
    activation,
    attention,
    conv,
    joined,
    linear,
    norm,
)

_WORDS: Final = 77  # of CLIP's text encoder
_FLUX_WORDS: Final = 512  # of T5, as published
_LATENT: Final = 8  # pixels of a side for one latent
_FLUX_SIDE: Final = 1024


def unet_shape(config: NetworkConfig) -> NetworkShape:
    """The shape of a UNet. Raises ValueError: a key is missing, or a kind of block is unknown."""
    return _UNet(config).shape()


class _UNet:
    def __init__(self, config: NetworkConfig) -> None:
        self.config = config
        self.channels = config.wholes("block_out_channels")
        count = len(self.channels)
        self.layers = config.each("layers_per_block", count, 2)
        self.depths = config.each("transformer_layers_per_block", count, 1)
        self.context = config.whole("cross_attention_dim", 1280)
        self.downs = config.texts("down_block_types", {"CrossAttnDownBlock2D", "DownBlock2D"})
        self.ups = config.texts("up_block_types", {"CrossAttnUpBlock2D", "UpBlock2D"})
        if len(self.downs) != count or len(self.ups) != count:
            raise ValueError("block_out_channels: expected one for each of down_block_types and up_block_types")
        self.side = config.whole("sample_size", 64)
        self.time = 4 * self.channels[0]
        self.skips: list[int] = []  # values

    def shape(self) -> NetworkShape:
        pixels = self.side * _LATENT
        blocks = [self._embeddings(), *self._down(), *self._middle(), *self._up(), self._end()]
        return NetworkShape(
            kind="UNet2DConditionModel",
            unit=f"an image of {pixels} × {pixels} pixels, one pass of a step",
            blocks=tuple(blocks),
            alive=sum(self.skips),
            source="diffusers' modules; Rombach et al. (2022)",
        )

    def _embeddings(self) -> NetworkBlock:
        first, area = self.channels[0], self.side**2
        parts = [conv(self.config.whole("in_channels", 4), first, 9, area)]
        parts += [linear(first, self.time, 1), linear(self.time, self.time, 1)]
        added = self.config.whole("projection_class_embeddings_input_dim", 0)
        if added:
            parts += [linear(added, self.time, 1), linear(self.time, self.time, 1)]
        self.skips.append(first * area)
        return joined(parts)

    def _down(self) -> Iterator[NetworkBlock]:
        before, side = self.channels[0], self.side
        for at, width in enumerate(self.channels):
            for _ in range(self.layers[at]):
                yield self._resnet(before, width, side**2)
                if self.downs[at].startswith("Cross"):
                    yield from self._transformer(width, self.depths[at], side**2)
                self.skips.append(width * side**2)
                before = width
            if at < len(self.channels) - 1:
                side //= 2
                yield conv(width, width, 9, side**2, stride=4)
                self.skips.append(width * side**2)

    def _middle(self) -> Iterator[NetworkBlock]:
        width, area = self.channels[-1], (self.side >> (len(self.channels) - 1)) ** 2
        resnet = self._resnet(width, width, area)
        yield resnet
        yield from self._transformer(width, self.depths[-1], area)
        yield resnet

    def _up(self) -> Iterator[NetworkBlock]:
        widths, depths, layers = self.channels[::-1], self.depths[::-1], self.layers[::-1]
        before, side = widths[0], self.side >> (len(widths) - 1)
        for at, width in enumerate(widths):
            after = widths[min(at + 1, len(widths) - 1)]
            for layer in range(layers[at] + 1):
                skip = after if layer == layers[at] else width
                yield self._resnet((before if layer == 0 else width) + skip, width, side**2)
                if self.ups[at].startswith("Cross"):
                    yield from self._transformer(width, depths[at], side**2)
            before = width
            if at < len(widths) - 1:
                side *= 2
                yield conv(width, width, 9, side**2)

    def _end(self) -> NetworkBlock:
        first, area = self.channels[0], self.side**2
        return joined(
            [norm(first, area), activation(first, area), conv(first, self.config.whole("out_channels", 4), 9, area)]
        )

    def _resnet(self, inputs: int, outputs: int, area: int) -> NetworkBlock:
        parts = [
            norm(inputs, area),
            activation(inputs, area),
            conv(inputs, outputs, 9, area),
            linear(self.time, outputs, 1),
            norm(outputs, area),
            activation(outputs, area),
            conv(outputs, outputs, 9, area),
        ]
        return joined(parts + ([conv(inputs, outputs, 1, area)] if inputs != outputs else []))

    def _transformer(self, width: int, depth: int, area: int) -> Iterator[NetworkBlock]:
        """Each layer is recomputed by itself."""

        def matrices(others: int, inputs: int) -> list[NetworkBlock]:
            return [
                norm(width, area),
                linear(width, width, area, bias=False),
                *(linear(inputs, width, others, bias=False) for _ in range(2)),
                attention(width, area, others),
                linear(width, width, area),
            ]

        layer = joined(
            [
                *matrices(area, width),
                *matrices(_WORDS, self.context),
                norm(width, area),
                linear(width, 8 * width, area),
                activation(8 * width, area),
                linear(4 * width, width, area),
            ]
        )
        yield joined([norm(width, area), linear(width, width, area)])
        yield from [layer] * depth
        yield linear(width, width, area)


def flux_shape(config: NetworkConfig) -> NetworkShape:
    """The shape of Flux's transformer. Raises ValueError: a key is missing or impossible."""
    width = config.whole("num_attention_heads", 24) * config.whole("attention_head_dim", 128)
    channels, pooled = config.whole("in_channels", 64), config.whole("pooled_projection_dim", 768)
    image = (_FLUX_SIDE // 16) ** 2  # latents of 8 × 8 pixels, in patches of 2 × 2
    ends = [linear(channels, width, image), linear(config.whole("joint_attention_dim", 4096), width, _FLUX_WORDS)]
    embeddings = 3 if config.fields.get("guidance_embeds") else 2
    for at in range(embeddings):  # of the step, the guidance and the prompt
        ends += [linear(pooled if at == embeddings - 1 else 256, width, 1), linear(width, width, 1)]
    blocks = [joined(ends)]
    blocks += [_flux_double(width, image)] * config.whole("num_layers", 19)
    blocks += [_flux_single(width, image + _FLUX_WORDS)] * config.whole("num_single_layers", 38)
    blocks.append(joined([linear(width, 2 * width, 1), linear(width, channels, image)]))
    return NetworkShape(
        kind="FluxTransformer2DModel",
        unit=f"an image of {_FLUX_SIDE} × {_FLUX_SIDE} pixels, one pass of a step",
        blocks=tuple(blocks),
        alive=2 * width * (image + _FLUX_WORDS),
        source="diffusers' modules",
    )


def _flux_double(width: int, image: int) -> NetworkBlock:
    """Image and text with weights of their own and a common attention."""
    parts: list[NetworkBlock] = []
    for tokens in (image, _FLUX_WORDS):
        parts += [norm(width, tokens, 0), linear(width, 6 * width, 1)]
        parts += [linear(width, width, tokens) for _ in range(4)]
        parts += [norm(width, tokens, 0), linear(width, 4 * width, tokens)]
        parts += [activation(4 * width, tokens), linear(4 * width, width, tokens)]
    heads = NetworkBlock(params=4 * 128)  # norms of queries and keys
    return joined([*parts, attention(width, image + _FLUX_WORDS), heads])


def _flux_single(width: int, tokens: int) -> NetworkBlock:
    """Attention and feed-forward side by side."""
    return joined(
        [
            norm(width, tokens, 0),
            linear(width, 3 * width, 1),
            *(linear(width, width, tokens) for _ in range(3)),
            attention(width, tokens),
            linear(width, 4 * width, tokens),
            activation(4 * width, tokens),
            linear(5 * width, width, tokens),
            NetworkBlock(params=2 * 128),
        ]
    )
