"""What must be in GPU memory at the same time: the keys of a workload, each declared once. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from gpuwatch.domain.plan.architectures.language_models import LanguageModel, model_of
from gpuwatch.domain.plan.roofline import Precision, TrainingMethod
from gpuwatch.domain.setup.fields import Measure, Switch, Table, Whole

AMethod = Annotated[TrainingMethod, WithJsonSchema({"enum": [str(one) for one in TrainingMethod], "type": "string"})]
APrecision = Annotated[Precision, WithJsonSchema({"enum": [str(one) for one in Precision], "type": "string"})]


def plain(value: Any) -> float | str:
    """Numbers and text only; TOML has more types. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise ValueError('expected a number, or text such as "70B"')  # noqa: TRY004 pydantic makes faults of these
    return value if isinstance(value, str) else float(value)


def _model(value: Any) -> LanguageModel:
    if isinstance(value, LanguageModel):
        return value
    text = plain(value)
    return model_of(text if isinstance(text, str) else f"{text / 1e9:.9f}b")


AModel = Annotated[
    LanguageModel, PlainValidator(_model), WithJsonSchema({"type": ["number", "string"], "examples": ["70B"]})
]


class WorkKeys(Table):
    """The keys that describe work with a model, wherever it is stated."""

    method: AMethod = Field(default=TrainingMethod.FULL, description="Training method, or inference.")
    optimizer: Literal["adamw", "adamw8bit", "lion", "sgd-momentum", "sgd", "adafactor"] = Field(
        default="adamw", description="Optimizer for training; affects memory."
    )
    batch: Whole = Field(
        default=1, ge=1, le=1_000_000, description="Sequences per batch; affects memory, and the speed of inference."
    )
    context: Whole = Field(default=4096, ge=1, le=100_000_000, description="Tokens per sequence; affects memory.")


class WorkloadKeys(WorkKeys):
    """These, and the keys of the planner alone."""

    precision: APrecision | None = Field(
        default=None,
        description="Data type of a weight. Default: as the config.json states its quantisation, else bf16.",
    )
    recompute: Switch = Field(default=True, description="Gradient checkpointing.")
    fused_attention: Switch = Field(default=True, description="FlashAttention: no context × context matrix in memory.")
    master: Switch = Field(default=True, description="Keep a 32-bit copy of 16-bit weights.")
    rank: Whole = Field(default=16, ge=1, le=4096, description="Rank of LoRA's matrices.")
    targets: Literal["all", "qv"] = Field(
        default="all", description="Layers with LoRA adapters: all linear layers, or query and value."
    )
    offload: Switch = Field(default=False, description="Keep optimizer states, or frozen weights, in CPU memory.")
    micro_batch: Whole | None = Field(
        default=None, ge=1, le=1_000_000, description="Sequences per pass, if a batch takes several passes."
    )
    input_gb: Measure = Field(default=0.0, description="GB of one input in the batch, besides its tokens.")


class Workload(WorkloadKeys):
    """What must be in memory at the same time."""

    model: AModel
    precision: APrecision = Precision.BF16
    as_published: bool = False  # the weights have the bits of the published files, if these are quantised

    @property
    def at_once(self) -> int:
        """Concurrent sequences in memory."""
        return self.batch if self.micro_batch is None else min(self.batch, self.micro_batch)

    @property
    def trains(self) -> bool:
        """Is it training?"""
        return self.method is not TrainingMethod.INFERENCE


class ModelKeys(WorkloadKeys):
    """The keys of a workload whose model may be left out."""

    model: AModel | None = Field(
        default=None, description='Parameters ("70B"), a model ("gpt-oss-120b", see `plan models`), or its config.json.'
    )
    shape: str | None = Field(default=None, description="config.json of the model, for its exact shape.")

    def workload(self) -> Workload | None:
        """The workload; None: no model is named."""
        if self.model is None:
            return None
        keys = {key: getattr(self, key) for key in WorkloadKeys.model_fields}
        keys |= {"method": self.work_method, "precision": self.precision or Precision.BF16}
        return Workload(model=self.model, as_published=self.precision is None, **keys)

    @property
    def work_method(self) -> TrainingMethod:
        """The method that counts."""
        return self.method
