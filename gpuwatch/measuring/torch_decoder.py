"""A decoder like Llama's with random weights, of tensors and functions alone: PyTorch is passed in, never imported.

Grouped attention through `scaled_dot_product_attention` (FlashAttention where PyTorch has it), RMSNorm, a feed-forward
part with or without a gate. Rotary positions are left out: they cost no weights and under a hundredth of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from gpuwatch.domain.plan.architectures.transformer_shape import TransformerShape
from gpuwatch.domain.plan.own_rows import SyntheticRun
from gpuwatch.domain.plan.roofline import Precision, TrainingMethod
from gpuwatch.ports.measuring import CannotMeasure

_SPREAD: Final = 0.02  # of the random weights, as GPT-2 begins
DTYPES: Final = {Precision.FP32: "float32", Precision.BF16: "bfloat16", Precision.FP16: "float16"}
Apply = Callable[[Any], Any]  # a matrix times its input
Layer = dict[str, Apply]


class TorchDecoder:
    """The weights, and which of them are trained.

    Args:
        torch: the module `torch`.
        device: "cuda", or "cpu" for tests.
        quantise: turns a matrix into its product with 4 bits a weight; None: bitsandbytes is not installed.
    """

    def __init__(self, torch: Any, device: str, run: SyntheticRun, quantise: Callable[[Any], Apply] | None) -> None:
        self._torch, self._device, self._run, self._quantise = torch, device, run, quantise
        self._dtype = getattr(torch, DTYPES[run.precision])
        self.trained: list[Any] = []
        shape = run.shape
        self._shape = shape
        self._words = self._matrix(shape.vocab, shape.hidden)
        self._head = self._words if shape.tied else self._matrix(shape.vocab, shape.hidden)
        if run.method is TrainingMethod.FULL:
            self.trained += [self._words] if shape.tied else [self._words, self._head]
        self._layers = [self._layer(shape) for _ in range(shape.layers)]
        for weight in self.trained:
            weight.requires_grad_(True)

    def tokens(self, length: int) -> Any:
        """Random tokens of all sequences that are in memory at once."""
        return self._torch.randint(0, self._shape.vocab, (self._run.batch, length), device=self._device)

    def loss(self, tokens: Any) -> Any:
        """The loss of predicting each next token."""
        functional = self._torch.nn.functional
        hidden = functional.embedding(tokens, self._words)
        if self.trained and not hidden.requires_grad:
            hidden.requires_grad_(True)  # adapters: recomputed layers need a gradient to flow through
        for layer in self._layers:
            if self._run.recompute:
                hidden = self._torch.utils.checkpoint.checkpoint(self._forward, hidden, layer, use_reentrant=False)
            else:
                hidden = self._forward(hidden, layer)
        logits = functional.linear(self._norm(hidden), self._head).float()
        return functional.cross_entropy(logits[:, :-1].reshape(-1, self._shape.vocab), tokens[:, 1:].reshape(-1))

    def caches(self, length: int) -> list[tuple[Any, Any]]:
        """Empty caches of keys and values."""
        size = (self._run.batch, self._shape.kv_heads, length, self._shape.head_width)
        make = self._torch.zeros
        kind = {"device": self._device, "dtype": self._dtype}
        return [(make(size, **kind), make(size, **kind)) for _ in self._layers]

    def next_token(self, tokens: Any, caches: list[tuple[Any, Any]], at: int) -> Any:
        """Read tokens from position `at` on, and write the most likely next one of each sequence."""
        hidden = self._torch.nn.functional.embedding(tokens, self._words)
        for layer, cache in zip(self._layers, caches, strict=True):
            hidden = self._forward(hidden, layer, cache, at)
        logits = self._torch.nn.functional.linear(self._norm(hidden[:, -1:]), self._head)
        return logits.argmax(dim=-1)

    # --- one layer ----------------------------------------------------------------------------------------------------

    def _forward(self, hidden: Any, layer: Layer, cache: tuple[Any, Any] | None = None, at: int = 0) -> Any:
        hidden = hidden + self._attend(self._norm(hidden), layer, cache, at)
        inner = self._norm(hidden)
        functional = self._torch.nn.functional
        if "gate" in layer:
            return hidden + layer["down"](functional.silu(layer["gate"](inner)) * layer["up"](inner))
        return hidden + layer["down"](functional.gelu(layer["up"](inner)))

    def _attend(self, hidden: Any, layer: Layer, cache: tuple[Any, Any] | None, at: int) -> Any:
        shape, (batch, length, _) = self._shape, hidden.shape
        query = layer["query"](hidden).view(batch, length, shape.heads, -1).transpose(1, 2)
        key, value = (
            layer[name](hidden).view(batch, length, shape.kv_heads, -1).transpose(1, 2) for name in ("key", "value")
        )
        if cache is not None:
            keys, values = cache
            keys[:, :, at : at + length], values[:, :, at : at + length] = key, value
            key, value = keys[:, :, : at + length], values[:, :, : at + length]
        mixed = self._torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=length > 1, enable_gqa=shape.heads != shape.kv_heads
        )
        return layer["output"](mixed.transpose(1, 2).reshape(batch, length, -1))

    def _norm(self, hidden: Any) -> Any:
        return self._torch.nn.functional.rms_norm(hidden, (self._shape.hidden,))

    # --- weights ------------------------------------------------------------------------------------------------------

    def _layer(self, shape: TransformerShape) -> Layer:
        return {name: self._product(name, outputs, inputs) for name, outputs, inputs in layer_matrices(shape)}

    def _product(self, name: str, outputs: int, inputs: int) -> Apply:
        linear = self._torch.nn.functional.linear
        weight, method = self._matrix(outputs, inputs), self._run.method
        if method is TrainingMethod.FULL:
            self.trained.append(weight)
        if method is TrainingMethod.QLORA:
            if self._quantise is None:
                raise CannotMeasure("QLoRA needs bitsandbytes: install it beside gpuwatch, or use --method lora")
            held = self._quantise(weight)
        else:
            held = lambda x: linear(x, weight)  # noqa: E731
        if method not in {TrainingMethod.LORA, TrainingMethod.QLORA} or not self._run.adapts(name):
            return held
        down = self._adapter(self._run.rank, inputs)
        up = self._adapter(outputs, self._run.rank)
        return lambda x: held(x) + linear(linear(x, down.to(x.dtype)), up.to(x.dtype))

    def _adapter(self, outputs: int, inputs: int) -> Any:
        weight = self._torch.randn(outputs, inputs, device=self._device) * _SPREAD
        self.trained.append(weight)
        return weight

    def _matrix(self, outputs: int, inputs: int) -> Any:
        return self._torch.randn(outputs, inputs, device=self._device, dtype=self._dtype) * _SPREAD


def layer_matrices(shape: TransformerShape) -> Iterator[tuple[str, int, int]]:
    """The matrices of one layer: name, outputs, inputs."""
    queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    yield "query", queries, shape.hidden
    yield "key", keys, shape.hidden
    yield "value", keys, shape.hidden
    yield "output", shape.hidden, queries
    if shape.matrices > 2:
        yield "gate", shape.ffn, shape.hidden
    yield "up", shape.ffn, shape.hidden
    yield "down", shape.hidden, shape.ffn
