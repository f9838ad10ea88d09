"""A network as blocks: weights, multiply-adds of one input, and the values kept for the backward pass. Pure.

Counted module by module, as the modules themselves are defined (PyTorch, diffusers, transformers): a matrix or
convolution has inputs × outputs × kernel weights, a multiply-add of each at each position, and keeps its input; a norm
or activation keeps its input, a ReLU its result, which the next part keeps as well. Attention keeps queries, keys and
values, as FlashAttention does (Dao, 2022); its result is the input of the matrix after it. Judged by PyTorch itself:
tests/domain/plan/networks/judged.json. Masks of dropout, and norms in 32 bits under autocast, come on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec


class NetworkFamily(StrEnum):
    """Networks that reach similar shares of a card's arithmetic."""

    UNET = "UNets"
    DIFFUSION_TRANSFORMER = "diffusion transformers"
    VISION_TRANSFORMER = "vision transformers"
    CONVOLUTIONAL = "convolutional networks"
    SPEECH = "speech encoders"


class NetworkBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A part whose input alone is kept if it is recomputed.

    Attributes:
        matrices: the weights of its matrices, without biases: they are quantised by libraries, convolutions are not.
        adapted: inputs and outputs of its matrices, for which an adapter has weights.
        inputs, kept: values, of one input of the network.
    """

    params: int = 0
    matrices: int = 0
    adapted: int = 0
    macs: float = 0.0
    inputs: int = 0
    kept: int = 0


class NetworkShape(msgspec.Struct, frozen=True, kw_only=True):
    """What `plan size` needs of it.

    Attributes:
        sample: what one input is called, in the plural: "images".
        writes: it writes its output word by word, so that a pass of inference is many steps.
        unit: what one input is: "an image of 1024 × 1024 pixels, one pass of a step".
        alive: values beside the block at work that inference holds: those of skip connections.
    """

    kind: str
    family: NetworkFamily
    sample: str = "images"
    writes: bool = False
    unit: str
    blocks: tuple[NetworkBlock, ...]
    alive: int = 0
    source: str = ""

    @property
    def params(self) -> int:
        """All weights, biases and norms included."""
        return sum(block.params for block in self.blocks)

    @property
    def matrices(self) -> int:
        """The weights of all matrices."""
        return sum(block.matrices for block in self.blocks)

    @property
    def adapted(self) -> int:
        """Inputs and outputs of all matrices."""
        return sum(block.adapted for block in self.blocks)

    @property
    def flop(self) -> float:
        """Operations of one pass forward: two for each multiply-add."""
        return 2.0 * sum(block.macs for block in self.blocks)

    @property
    def working_values(self) -> int:
        """Values in memory during a pass of inference: those of the largest block, and of skip connections."""
        return self.alive + max(block.kept for block in self.blocks)

    def trained_values(self, *, recompute: bool) -> int:
        """Values in memory until the backward pass; recomputed: the inputs of all blocks, and one whole block."""
        if recompute:
            return sum(block.inputs for block in self.blocks) + max(block.kept for block in self.blocks)
        return sum(block.kept for block in self.blocks)


def joined(parts: Sequence[NetworkBlock]) -> NetworkBlock:
    """Parts one after the other as one block."""
    return NetworkBlock(
        params=sum(part.params for part in parts),
        matrices=sum(part.matrices for part in parts),
        adapted=sum(part.adapted for part in parts),
        macs=sum(part.macs for part in parts),
        inputs=parts[0].inputs,
        kept=sum(part.kept for part in parts),
    )


def side_by_side(parts: Sequence[NetworkBlock]) -> NetworkBlock:
    """Parts that read the same input, which is kept once."""
    return msgspec.structs.replace(joined(parts), kept=parts[0].kept)


def kept(values: int) -> NetworkBlock:
    """Values that are kept beside the inputs of the parts: factors of a product."""
    return NetworkBlock(kept=values)


def linear(inputs: int, outputs: int, positions: int, *, bias: bool = True) -> NetworkBlock:
    """A matrix at each position."""
    weights, values = inputs * outputs, inputs * positions
    return NetworkBlock(
        params=weights + (outputs if bias else 0),
        matrices=weights,
        adapted=inputs + outputs,
        macs=weights * positions,
        inputs=values,
        kept=values,
    )


def conv(inputs: int, outputs: int, kernel: int, positions: int, *, bias: bool = True, stride: int = 1) -> NetworkBlock:
    """A convolution. `kernel`: weights of one channel, 9 for 3 × 3. `positions`: of its output."""
    weights, values = inputs * outputs * kernel, inputs * positions * stride
    return NetworkBlock(
        params=weights + (outputs if bias else 0), macs=weights * positions, inputs=values, kept=values
    )  # fmt: skip


def norm(channels: int, positions: int, weights: int = 2) -> NetworkBlock:
    """A norm with scale and shift (`weights` 1: scale alone; 0: neither)."""
    return NetworkBlock(params=weights * channels, inputs=channels * positions, kept=channels * positions)


def activation(channels: int, positions: int) -> NetworkBlock:
    """A function of each value, which keeps its input."""
    return NetworkBlock(inputs=channels * positions, kept=channels * positions)


def attention(width: int, positions: int, others: int | None = None) -> NetworkBlock:
    """Attention of `positions` to `others`, by default to themselves; its matrices are counted apart."""
    keys = positions if others is None else others
    return NetworkBlock(
        macs=2.0 * width * positions * keys, inputs=width * positions, kept=width * (positions + 2 * keys)
    )  # fmt: skip


def encoder_layer(width: int, inner: int, positions: int) -> NetworkBlock:
    """A layer of a transformer encoder with biases (Vaswani et al., 2017), as in ViT, wav2vec 2.0 and Whisper."""
    return joined(
        [
            norm(width, positions),
            side_by_side([linear(width, width, positions)] * 3),
            attention(width, positions),
            linear(width, width, positions),
            norm(width, positions),
            linear(width, inner, positions),
            activation(inner, positions),
            linear(inner, width, positions),
        ]
    )
