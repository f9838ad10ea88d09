"""The files that start a plan: DeepSpeed's JSON, Accelerate's YAML, and the command. Pure.

Keys as documented: deepspeed.ai/docs/config-json, huggingface.co/docs/accelerate (FSDP, Megatron-LM), and
docs.vllm.ai for serving. A plan without tensor and pipeline parallelism is started by DeepSpeed or by FSDP, as the
training program needs it; with them, by Megatron-LM through Accelerate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuwatch.domain.plan.parallelism.card_layout import CardGroup, Layout, last_stage, stage_layers
from gpuwatch.domain.plan.roofline import Precision

if TYPE_CHECKING:
    from gpuwatch.domain.plan.workload import Workload

_PORT = 29500  # torchrun's own default
_BITS = {Precision.FP32: " --dtype float32", Precision.FP16: " --dtype float16", Precision.FP8: " --quantization fp8"}
_QUANTISED = (Precision.INT8, Precision.INT4)  # vLLM quantises to fp8 itself
_HEAD = "Written by gpuwatch plan parallel:"


def launch_files(work: Workload, group: CardGroup, layout: Layout) -> dict[str, str]:
    """File name → text."""
    if not work.trains:
        return {"serve.sh": _script(group, layout, _serve(work, group, layout))}
    steps = f"# each replica: sequences at once: {layout.micro}; passes of a step: {layout.passes}"
    if layout.model > 1:
        megatron = _accelerate(work, group, "MEGATRON_LM", megatron_lm_config=_megatron(work, layout))
        known = "# Accelerate starts Megatron-LM for models of Llama, GPT-2, BERT, T5 and GLM-4 MoE"
        command = _accelerate_command(group, "accelerate-megatron.yaml")
        return {"accelerate-megatron.yaml": megatron, "train.sh": _script(group, layout, [known, steps, *command])}
    plain = "accelerate-fsdp.yaml" if layout.zero else "accelerate-ddp.yaml"
    kind = "FSDP" if layout.zero else "MULTI_GPU" if group.count > 1 else "NO"
    passes = f"ACCELERATE_GRADIENT_ACCUMULATION_STEPS={layout.passes} " if layout.passes > 1 else ""
    commands = [
        steps,
        "# one of the three, as the training program needs it:",
        *_accelerate_command(group, "accelerate-deepspeed.yaml"),
        *(f"# {passes}{line}" for line in _accelerate_command(group, plain)),
        *(f"# {line}" for line in _torchrun(group, "--deepspeed deepspeed.json")),
    ]
    deepspeed = {"deepspeed_config_file": "deepspeed.json", "zero3_init_flag": layout.zero == 3}
    return {
        "deepspeed.json": json.dumps(deepspeed_config(work, layout), indent=2) + "\n",
        "accelerate-deepspeed.yaml": _accelerate(work, group, "DEEPSPEED", deepspeed_config=deepspeed),
        plain: _accelerate(work, group, kind, **_fsdp(work, layout)),
        "train.sh": _script(group, layout, commands),
    }


def deepspeed_config(work: Workload, layout: Layout) -> dict[str, Any]:
    """The configuration of DeepSpeed."""
    zero: dict[str, Any] = {"stage": layout.zero}
    if layout.zero:
        zero |= {"overlap_comm": True, "contiguous_gradients": True}
    if layout.zero == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    if work.offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if layout.zero == 3:
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    return {
        "train_batch_size": layout.micro * layout.passes * layout.data,
        "train_micro_batch_size_per_gpu": layout.micro,
        "gradient_accumulation_steps": layout.passes,
        "gradient_clipping": 1.0,
        # weights of fewer bits are computed with in bf16
        "bf16": {"enabled": work.precision not in (Precision.FP32, Precision.FP16)},
        "fp16": {"enabled": work.precision is Precision.FP16},
        "zero_optimization": zero,
    }


def _fsdp(work: Workload, layout: Layout) -> dict[str, Any]:
    if not layout.zero:
        return {}
    return {
        "fsdp_config": {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": layout.zero == 3,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_offload_params": work.offload,
            "fsdp_activation_checkpointing": work.recompute,
        }
    }


def _megatron(work: Workload, layout: Layout) -> dict[str, Any]:
    values: dict[str, Any] = {
        "megatron_lm_tp_degree": layout.tensor,
        "megatron_lm_pp_degree": layout.pipeline,
        "megatron_lm_context_parallel_size": 1,  # Accelerate 1.15.0 takes 2 if it is not stated
        "megatron_lm_num_micro_batches": layout.passes,
        "megatron_lm_sequence_parallelism": layout.tensor > 1,
        "megatron_lm_use_distributed_optimizer": layout.zero > 0,
        "megatron_lm_recompute_granularity": "full" if work.recompute else "selective",
        "megatron_lm_gradient_clipping": 1.0,
    }
    if (last := last_stage(work, layout.pipeline)) != stage_layers(work, layout.pipeline):
        values["megatron_lm_decoder_last_pipeline_num_layers"] = last
    return values


def _accelerate(work: Workload, group: CardGroup, kind: str, **config: Mapping[str, Any]) -> str:
    mixed = {Precision.FP32: "no", Precision.FP16: "fp16", Precision.FP8: "fp8"}.get(work.precision, "bf16")
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        # DeepSpeed's own file states the precision
        **({} if kind == "DEEPSPEED" else {"mixed_precision": mixed}),
        "num_machines": group.machines,
        "num_processes": group.count,
        "main_process_port": _PORT,
        "rdzv_backend": "static",
        "same_network": True,
        "main_training_function": "main",
        "use_cpu": False,
        **config,
    }
    lines = [f"# {_HEAD} {group.count}x {group.gpu.name}"]
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines += [f"{key}:", *(f"  {inner}: {json.dumps(one)}" for inner, one in value.items())]
        else:
            lines.append(f"{key}: {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def _accelerate_command(group: CardGroup, file: str) -> list[str]:
    place = ' --machine_rank "$RANK" --main_process_ip "$HEAD"' if group.machines > 1 else ""
    return [f'accelerate launch --config_file {file}{place} "$@"']


def _torchrun(group: CardGroup, more: str) -> list[str]:
    place = (
        "--standalone" if group.machines == 1 else f'--node_rank "$RANK" --master_addr "$HEAD" --master_port {_PORT}'
    )
    return [f'torchrun --nnodes {group.machines} --nproc_per_node {group.per_machine} {place} "$@" {more}']


def _serve(work: Workload, group: CardGroup, layout: Layout) -> list[str]:
    sizes = f"--tensor-parallel-size {layout.tensor} --pipeline-parallel-size {layout.pipeline}"
    replicas = f" --data-parallel-size {layout.data}" if layout.data > 1 else ""
    bits = "" if work.as_published else _BITS.get(work.precision, "")
    command = f'vllm serve "$@" {sizes}{replicas}{bits} --max-model-len {work.context} --gpu-memory-utilization 0.9'
    quantised = [] if work.as_published or work.precision not in _QUANTISED else [
        f"# planned for {work.precision.value} weights: name a model that is quantised so (AWQ, GPTQ or the like)"
    ]  # fmt: skip
    if group.machines == 1:
        return [*quantised, command]
    ray = " --data-parallel-backend ray" if layout.data > 1 else ""
    return [
        *quantised,
        '[ "$RANK" = 0 ] || exec ray start --address "$HEAD:6379" --block',
        "ray start --head --port 6379",
        f"{command} --distributed-executor-backend ray{ray}",
    ]


def _script(group: CardGroup, layout: Layout, commands: list[str]) -> str:
    usage = "$@: the training program and its arguments"
    lines = ["#!/bin/sh", f"# {_HEAD} {group.machines} x {group.per_machine}x {group.gpu.name}, {layout.text}"]
    if any("vllm serve" in command for command in commands):
        usage = "$@: the model, and further arguments"
    lines.append(f"# {usage}")
    if group.machines > 1:
        lines.append(f"# on each of {group.machines} machines: RANK=0, 1, … and HEAD=address of the first one")
        lines.append(': "${RANK:?number of this machine, from 0}" "${HEAD:?address of the first machine}"')
    return "\n".join([*lines, "set -eu", *commands]) + "\n"
