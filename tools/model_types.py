"""Writes `model-types.json` from an installed `transformers`: the defaults of its configuration classes.

Run it in an environment with transformers (torch is not needed): `python tools/model_types.py > …/model-types.json`.
Only keys that the readers in `gpuwatch/domain/plan` ask for are kept. `_OWN` are types that transformers does not
have; `_REFUSED` are structures that no reader understands.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

PLANNING = Path(__file__).parents[1] / "gpuwatch" / "domain" / "plan" / "architectures"
READERS = ("model_keys", "layer_kinds", "layer_weights", "side_models", "encoder_models", "model_config")
MAPPINGS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
)
_LLAMA = (
    *("aquila", "baichuan", "internlm2", "internlm3", "kormo", "mimo", "orion", "skywork", "telechat3", "xverse", "yi"),
)
# published files differ from the defaults: the first has both embeddings, and its count of parameters, too
_PUBLISHED: dict[str, dict[str, Any]] = {"falcon": {"tie_word_embeddings": False}}
_OWN: dict[str, dict[str, Any]] = {
    **{name: {"like": "llama", "defaults": {"tie_word_embeddings": False}} for name in _LLAMA},
    "kimi_k2": {"like": "deepseek_v3"},
    "kimi_vl": {"parts": {"text_config": "deepseek_v3"}},
    "deepseek_vl_v2": {"parts": {"language_config": "deepseek_v2"}},
    "internvl_chat": {"parts": {"llm_config": "qwen2"}},
    "minicpm": {"like": "llama", "defaults": {"tie_word_embeddings": True}},
    "exaone": {"like": "llama", "defaults": {"tie_word_embeddings": False}},
    "bailing_moe": {"like": "deepseek_moe"},
    "minimax_text_01": {"like": "minimax"},
    "deepseek": {"like": "deepseek_moe"},
    "grok-1": {"like": "mixtral"},
    "internlm": {"like": "llama", "defaults": {"tie_word_embeddings": False}},
    "minicpmo": {"like": "qwen2"},
    "minicpmv": {"like": "qwen2"},
    "phi4mm": {"like": "phi3"},
    "qwen": {"defaults": {"tie_word_embeddings": False}},
    "RefinedWeb": {"like": "falcon", "defaults": {"new_decoder_architecture": True}},
    "RefinedWebModel": {"like": "falcon"},
    "deepseek_moe": {"defaults": {"tie_word_embeddings": False}},
    "chatglm": {"defaults": {"tie_word_embeddings": False}},
}


def keys_of_readers() -> set[str]:
    """Every word in quotes of the modules that read a config.json."""
    text = "".join((PLANNING / f"{name}.py").read_text() for name in READERS)
    return set(re.findall(r'"([A-Za-z_0-9]+)"', text))


def collect(wanted: set[str]) -> dict[str, dict[str, Any]]:
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    found: dict[str, dict[str, Any]] = {}

    def put(kind: type[Any], name: str) -> None:
        if name in found or not dataclasses.is_dataclass(kind):
            return
        found[name] = entry = {"defaults": _defaults(kind, wanted), "parts": {}}
        for key, part in (kind.sub_configs or {}).items():  # type: ignore[attr-defined]
            own = _default_part(kind, key) if part.__name__ == "AutoConfig" else part
            if own is not None and key in wanted:
                entry["parts"][key] = own.model_type
                put(own, own.model_type)

    names = {name for mapping in MAPPINGS for name in getattr(modeling_auto, mapping, {})}
    for name in sorted(names):
        try:
            put(CONFIG_MAPPING[name], name)
        except Exception as error:
            print(name, str(error)[:80], file=sys.stderr)
    return found


def _defaults(kind: type[Any], wanted: set[str]) -> dict[str, Any]:
    found = {}
    for field in dataclasses.fields(kind):
        value = field.default
        if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        is_plain = isinstance(value, (bool, int, float, str, list))
        if field.name in wanted and is_plain and value not in ("", []):
            found[field.name] = list(value) if isinstance(value, list) else value
    return found


def _default_part(kind: type[Any], key: str) -> type[Any] | None:
    try:
        part = getattr(kind(), key, None)
    except Exception:
        return None
    return type(part) if hasattr(part, "model_type") else None


def main() -> None:
    import transformers

    found = collect(keys_of_readers()) | _OWN
    for name, values in _PUBLISHED.items():
        found[name]["defaults"] |= values
    refused = json.loads((Path(__file__).with_name("model_types_refused.json")).read_text())
    for name, why in refused.items():
        found.setdefault(name, {})["refused"] = why
    print(f"transformers {transformers.__version__}", file=sys.stderr)
    lines = [
        f"{json.dumps(name)}: {json.dumps({key: value for key, value in entry.items() if value})}"
        for name, entry in sorted(found.items())
    ]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
