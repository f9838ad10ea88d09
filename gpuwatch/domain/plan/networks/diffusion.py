"""The UNets of diffusion models, as diffusers defines them (SD 1.5, 2, SDXL). Pure.

Sources: `UNet2DConditionModel` of github.com/huggingface/diffusers; Rombach et al. (2022), Podell et al. (SDXL, 2023).
Text encoders and the VAE have a config.json of their own and are not counted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

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

_WORDS: Final = 77  # of CLIP's text encoder
_LATENT: Final = 8  # pixels of a side for one latent


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
            family=NetworkFamily.UNET,
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

        query = linear(width, width, area, bias=False)
        words = side_by_side([linear(self.context, width, _WORDS, bias=False)] * 2)

        layer = joined(
            [
                *(norm(width, area), side_by_side([query] * 3), attention(width, area), linear(width, width, area)),
                *(norm(width, area), query, words, attention(width, area, _WORDS), linear(width, width, area)),
                norm(width, area),
                linear(width, 8 * width, area),
                *(activation(8 * width, area), kept(4 * width * area)),  # GEGLU: both halves, and the gate's result
                linear(4 * width, width, area),
            ]
        )
        yield joined([norm(width, area), linear(width, width, area)])
        yield from [layer] * depth
        yield linear(width, width, area)
