"""Writes the parameters and the cache of model types as transformers itself has them, to compare gpuwatch's with.

Run it in an environment with transformers and torch (CPU): `python tools/model_counts.py > …/transformers-counts.json`.
Each model is made without weights (on the `meta` device) from the defaults of its configuration class, which are those
of the named checkpoint or of one like it. The cache of a token is the width of the keys and values of all layers that
have them; `kv` is missing where both are part of a larger product.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from typing import Any

TYPES = {
    "AutoModelForCausalLM": (
        "afmoe apertus arcee bamba bitnet bloom codegen cohere cohere2 deepseek_v2 deepseek_v3 ernie4_5 ernie4_5_moe"
        " exaone4 falcon_h1 falcon_mamba gemma gemma2 gemma3_text gemma3n_text glm glm4 glm4_moe gpt2 gpt_bigcode"
        " gpt_neo gpt_neox gpt_oss gptj granite granitemoe granitemoehybrid granitemoeshared helium jamba lfm2 llama"
        " llama4_text mamba mamba2 minimax minimax_m2 mistral mixtral mpt nanochat olmo olmo2 olmo3 olmoe opt persimmon"
        " phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next recurrent_gemma seed_oss smollm3 stablelm"
        " starcoder2 xglm"
    ),
    "AutoModelForSeq2SeqLM": "bart m2m_100 mt5 t5",
    "AutoModelForSpeechSeq2Seq": "whisper",
    "AutoModelForMaskedLM": "bert roberta",
}
CACHED = r"(^|\.)(k_proj|v_proj|kv_a_proj_with_mqa|SelfAttention\.[kv])$"
BESIDE = r"vision|visual|audio|encoder_attn|EncDecAttention|encoder\.|cross_attn"


def counted(name: str, auto: Any) -> dict[str, Any]:
    import torch
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[name]
    config = kind()
    with torch.device("meta"):
        model = auto.from_config(config)
    found: dict[str, Any] = {"params": sum({id(one): one.numel() for one in model.parameters()}.values())}
    values = 0
    for path, module in model.named_modules():
        if re.search(r"(^|\.)(k_proj|v_proj|kv_a_proj_with_mqa|SelfAttention\.[kv])$", path) and not re.search(
            BESIDE, path
        ):
            values += module.out_features
    if values:
        found["kv"] = 2 * values
    checkpoint = re.search(r"checkpoint=\"([^\"]+)\"", inspect.getsource(inspect.getmodule(kind)))  # type: ignore[arg-type]
    return found | ({"checkpoint": checkpoint[1]} if checkpoint else {})


def main() -> None:
    import transformers

    found: dict[str, Any] = {}
    for auto, names in TYPES.items():
        for name in names.split():
            try:
                found[name] = counted(name, getattr(transformers, auto))
            except Exception as error:
                print(name, str(error)[:100], file=sys.stderr)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(found.items()))
    print(f'{{\n"source": "transformers {transformers.__version__}",\n"types": {{\n{lines}\n}}\n}}')


if __name__ == "__main__":
    main()
