"""The dimensions of a transformer decoder, from which its weights, caches and adapters are counted. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec


class LinearRole(StrEnum):
    """The purpose of a matrix."""

    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    OUTPUT = "output"
    FEED_FORWARD = "feed-forward"
    ROUTER = "router"


class LinearMatrices(msgspec.Struct, frozen=True):
    """Matrices of one size, in all layers together."""

    role: LinearRole
    inputs: int
    outputs: int
    count: int
    used: int  # by one token: fewer than `count` if a token uses only some of the experts
    module: str = ""  # as quantisation settings name it: "self_attn.q_proj"; empty: not read from a config.json

    @property
    def weights(self) -> int:
        """The number of weights of one matrix."""
        return self.inputs * self.outputs


class LayerCache(msgspec.Struct, frozen=True):
    """What some layers cache for each token."""

    layers: int
    values: int  # per token in each layer
    window: int = 0  # the last tokens that they attend to; 0: all


class OtherWeights(msgspec.Struct, frozen=True):
    """Weights beside the layers of the text model, such as an image encoder."""

    name: str
    params: int


class TransformerShape(msgspec.Struct, frozen=True):
    """The dimensions of a transformer decoder. 0: the model has no such part."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int  # fewer than heads: grouped queries
    ffn: int  # inner width of a feed-forward layer, or of one expert
    vocab: int
    experts: int = 1
    tied: bool = False  # input and output embeddings are shared
    head_dim: int = 0  # 0: hidden ÷ heads
    matrices: int = 3  # of a feed-forward layer: 3 if it is gated
    used: int = 1  # experts per token
    shared: int = 0  # inner width of the part that all tokens use besides their experts
    dense: int = 0  # layers without experts
    dense_ffn: int = 0  # their inner width
    kv_rank: int = 0  # multi-head latent attention (DeepSeek-V2, 2024): keys and values are cached at this width
    q_rank: int = 0  # width of the compressed queries
    nope: int = 0  # width of a head's keys without position,
    rope: int = 0  # with position (one for all heads),
    value: int = 0  # and of its values
    # of a model whose layers differ, or that has more than layers; empty: all layers are alike
    own: tuple[LinearMatrices, ...] = ()  # all matrices of all layers
    caches: tuple[LayerCache, ...] | None = None
    state: int = 0  # values of each sequence, however long: of recurrent layers, or of an encoder's output
    beside: tuple[OtherWeights, ...] = ()

    @property
    def head_width(self) -> int:
        """The width of one head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def layer_caches(self) -> tuple[LayerCache, ...]:
        """The caches of all layers."""
        if self.caches is not None:
            return self.caches
        values = self.kv_rank + self.rope if self.kv_rank else 2 * self.head_width * self.kv_heads
        return (LayerCache(self.layers, values),)

    @property
    def cached_values(self) -> int:
        """Values per token in the caches of all layers."""
        return sum(cache.layers * cache.values for cache in self.layer_caches)

    @property
    def kv_width(self) -> int:
        """Half of the values per token in the cache of a layer, on average: the width of all keys."""
        return self.cached_values // (2 * self.layers)

    def held_values(self, sequences: int, context: int, chunk: int) -> int:
        """Values in the caches of all layers.

        Args:
            chunk: tokens that are read at once; a layer with a window holds these, and the window of each sequence.
        """
        tokens = sequences * context
        held = self.state * sequences
        for cache in self.layer_caches:
            bound = sequences * min(context, cache.window) + chunk if cache.window else tokens
            held += cache.layers * cache.values * min(tokens, bound)
        return held

    @property
    def inner_width(self) -> int:
        """The widest feed-forward layer for one token."""
        return max(self.dense_ffn, self.ffn * self.used + self.shared)

    @property
    def params(self) -> float:
        """Number of weights; norms and biases, below a thousandth, are left out."""
        inner = sum(linear.weights * linear.count for linear in self.linears())
        beside = sum(one.params for one in self.beside)
        return float(inner + self.vocab * self.hidden * (1 if self.tied else 2) + beside)

    @property
    def active_params(self) -> float:
        """Weights that one token is multiplied with; for experts without the input embedding, which is looked up."""
        if self.experts == 1:
            return self.params - sum(one.params for one in self.beside)
        inner = sum(linear.weights * linear.used for linear in self.linears())
        return float(inner + self.vocab * self.hidden)

    def linears(self) -> Iterator[LinearMatrices]:
        """All matrices of the layers, without embeddings."""
        if self.own:
            yield from self.own
            return
        yield from self._latent() if self.kv_rank else self._attention()
        sparse = self.layers - self.dense
        each = self.matrices * sparse
        used, module = each * min(self.used, self.experts), "mlp.experts" if self.experts > 1 else "mlp"
        yield LinearMatrices(LinearRole.FEED_FORWARD, self.hidden, self.ffn, each * self.experts, used, module)
        if self.experts > 1:
            yield self._all(LinearRole.ROUTER, self.hidden, self.experts, sparse)
        if self.shared:
            yield self._all(LinearRole.FEED_FORWARD, self.hidden, self.shared, each)
        if self.dense:
            yield self._all(LinearRole.FEED_FORWARD, self.hidden, self.dense_ffn, self.matrices * self.dense)

    def _attention(self) -> Iterator[LinearMatrices]:
        queries, keys = self.heads * self.head_width, self.kv_heads * self.head_width
        yield self._all(LinearRole.QUERY, self.hidden, queries, self.layers)
        yield self._all(LinearRole.KEY, self.hidden, keys, self.layers)
        yield self._all(LinearRole.VALUE, self.hidden, keys, self.layers)
        yield self._all(LinearRole.OUTPUT, queries, self.hidden, self.layers)

    def _latent(self) -> Iterator[LinearMatrices]:
        queries = self.heads * (self.nope + self.rope)
        if self.q_rank:
            yield self._all(LinearRole.QUERY, self.hidden, self.q_rank, self.layers)
        yield self._all(LinearRole.QUERY, self.q_rank or self.hidden, queries, self.layers)
        yield self._all(LinearRole.KEY, self.hidden, self.kv_rank + self.rope, self.layers)
        yield self._all(LinearRole.VALUE, self.kv_rank, self.heads * (self.nope + self.value), self.layers)
        yield self._all(LinearRole.OUTPUT, self.heads * self.value, self.hidden, self.layers)

    @staticmethod
    def _all(role: LinearRole, inputs: int, outputs: int, count: int) -> LinearMatrices:
        return LinearMatrices(role, inputs, outputs, count, count)
