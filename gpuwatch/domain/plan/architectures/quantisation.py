"""The `quantization_config` of a config.json: how many bits the published weights have, and which stay in 16. Pure.

Bits include the scales and zero points that each group of weights has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from gpuwatch.domain.plan.architectures.model_keys import ConfigKeys
from gpuwatch.domain.plan.architectures.transformer_shape import LinearMatrices, LinearRole, TransformerShape

_SCALE_BITS: Final = 16.0
_MXFP4_BITS: Final = 4 + 8 / 32  # OCP Microscaling Formats 1.0: an 8-bit scale for 32 weights
_NVFP4_BITS: Final = 4 + 8 / 16
_ABSMAX: Final = 32 / 64  # bitsandbytes: a 32-bit constant for 64 weights; 0.127 if it is quantised again
_ABSMAX_TWICE: Final = 0.127
_KEPT: Final = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "llm_int8_skip_modules")
_EIGHT: Final = frozenset({"fp8", "fbgemm_fp8", "finegrained_fp8", "eetq"})


class Quantisation(msgspec.Struct, frozen=True, kw_only=True):
    """Published weights of fewer than 16 bits.

    Attributes:
        bits: of a quantised weight; None: the method is not understood, so the weights count as 16 bits.
        share: of the weights that are quantised; the others have 16 bits.
    """

    method: str
    bits: float | None
    share: float

    @property
    def bytes_per_weight(self) -> float:
        """Bytes of a weight as published, on average."""
        return 2.0 if self.bits is None else self.share * self.bits / 8 + 2.0 * (1 - self.share)

    @property
    def text(self) -> str:
        """The method, its bits, and its share of the weights."""
        if self.bits is None:
            return f"quantisation {self.method} is not understood: counted with 2 bytes a weight"
        return (
            f"{self.method} as published: {self.bits:.4g} bits for {self.share:.1%} of the weights, 16 for the others"
        )


def quantisation_of(fields: Mapping[str, Any], keys: ConfigKeys, shape: TransformerShape) -> Quantisation | None:
    """The quantisation of the published weights; None: 16 bits, or more."""
    stated = next((one for one in (fields, keys.fields) if isinstance(one.get("quantization_config"), Mapping)), None)
    if stated is None:
        return None
    return _quantisation(stated["quantization_config"], shape)


def published_quantisation(method: str, shape: TransformerShape) -> Quantisation:
    """The quantisation of a listed model, whose publisher uses a method with its usual settings."""
    return _quantisation({"quant_method": method, "weight_block_size": [128, 128]}, shape)


def _quantisation(settings: Mapping[str, Any], shape: TransformerShape) -> Quantisation:
    producer = settings.get("producer")
    named = settings.get("quant_method") or settings.get("quant_type")
    method = str(named or (producer.get("name") if isinstance(producer, Mapping) else None) or "unnamed")[:40].lower()
    bits = _bits(method, settings)
    if bits is None:
        return Quantisation(method=method, bits=None, share=0.0)
    patterns = [str(one) for name in _KEPT for one in _listed(settings.get(name))]
    linears = [one for one in shape.linears() if _is_converted(method, one)]
    params = sum(one.weights * one.count * _converted_share(one, shape.layers, patterns) for one in linears)
    return Quantisation(method=method, bits=bits, share=params / shape.params)


def _bits(method: str, settings: Mapping[str, Any]) -> float | None:
    """Bits of a weight with its constants; None: not understood."""
    if method == "mxfp4":
        return _MXFP4_BITS
    if method in _EIGHT:
        return 8 + _per_block(settings.get("weight_block_size"))
    if method == "bitsandbytes":
        if settings.get("load_in_8bit") or settings.get("_load_in_8bit"):
            return 8.0
        return 4 + (_ABSMAX_TWICE if settings.get("bnb_4bit_use_double_quant") else _ABSMAX)
    if method in {"compressed-tensors", "modelopt", "quark"}:
        return _group_bits(settings)
    stated = next((settings[name] for name in ("bits", "w_bit", "nbits") if name in settings), None)
    if isinstance(stated, bool) or not isinstance(stated, (int, float)) or not 1 <= stated <= 8:
        return None
    group = settings.get("group_size", settings.get("q_group_size", 128))
    constants = (_SCALE_BITS + stated) / group if isinstance(group, int) and group > 0 else 0.0
    return float(stated) + constants


def _group_bits(settings: Mapping[str, Any]) -> float | None:
    """Of `config_groups`, as llm-compressor and NVIDIA's Model Optimizer write them."""
    algorithm = str(settings.get("quant_algo") or "").upper()
    if algorithm.startswith("NVFP4"):
        return _NVFP4_BITS
    if algorithm.startswith("FP8"):
        return 8.0
    groups = settings.get("config_groups")
    weights = [
        group["weights"]
        for group in (groups.values() if isinstance(groups, Mapping) else ())
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping)
    ]
    if len({(one.get("num_bits"), one.get("group_size")) for one in weights}) != 1:
        return None
    bits, group = weights[0].get("num_bits"), weights[0].get("group_size")
    if not isinstance(bits, int) or not 1 <= bits <= 8:
        return None
    if bits == 4 and weights[0].get("type") == "float":
        return _NVFP4_BITS if group == 16 else _MXFP4_BITS
    return bits + (_SCALE_BITS / group if isinstance(group, int) and group > 0 else 0.0)


def _per_block(block: Any) -> float:
    if isinstance(block, list) and len(block) == 2 and all(isinstance(side, int) and side > 0 for side in block):
        return float(32 / (block[0] * block[1]))
    return 0.0


def _is_converted(method: str, linear: LinearMatrices) -> bool:
    """Libraries convert linear layers; mxfp4 those of experts alone, as gpt-oss has them."""
    if method == "mxfp4":
        return linear.module == "mlp.experts"
    return linear.role is not LinearRole.ROUTER


def _converted_share(linear: LinearMatrices, layers: int, patterns: Iterable[str]) -> float:
    """The share of the layers in which the settings do not leave a module as it is."""
    patterns = list(patterns)
    if not patterns:
        return 1.0
    kept = sum(any(_names(pattern, f"layers.{at}.{linear.module}") for pattern in patterns) for at in range(layers))
    return 1 - kept / layers


def _names(pattern: str, module: str) -> bool:
    """Does a pattern name this module, or a module around it? Exact, a glob, or `re:` and a regular expression."""
    full = f"model.{module}"
    if pattern.startswith("re:"):
        try:
            return re.match(pattern[3:], full) is not None or re.match(pattern[3:], f"{full}.0.gate_proj") is not None
        except re.error:
            return False
    plain = pattern.removeprefix("model.").removeprefix("language_model.").removeprefix("model.").rstrip("*.")
    if "*" in plain:
        return fnmatchcase(module, plain) or fnmatchcase(module, f"{plain}.*")
    return bool(plain) and (f".{module}.".find(f".{plain}.") >= 0 or f".{module}".startswith(f".{plain}."))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
