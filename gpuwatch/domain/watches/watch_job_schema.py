"""What an owner may write in `[watch.job]`."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from gpuwatch.domain.market.money import MAX_USD_HOUR
from gpuwatch.domain.plan.architectures.language_models import LanguageModel
from gpuwatch.domain.plan.figures import (
    FigureRange,
    GpuAllocation,
    exactly,
    parse_figure,
    parse_gpu_config,
    parse_range,
)
from gpuwatch.domain.plan.job_hours import Decoding, GpuRate, JobSpec, hours_on
from gpuwatch.domain.plan.job_total import inference_flop, training_flop
from gpuwatch.domain.plan.memory_need import gb_read_per_step, memory_need
from gpuwatch.domain.plan.roofline import Precision
from gpuwatch.domain.plan.workload import AModel, APrecision, WorkKeys, Workload, plain
from gpuwatch.domain.setup.durations import HOUR_S, parse_duration
from gpuwatch.domain.setup.fields import Measure, Number, SpanFrom1s, Written

_FINE = Decimal("0.000001")
_MOST_USD = Decimal(int(MAX_USD_HOUR))
_SHORTEST_H = 1e-6  # a shorter job is limited only by its own cost


def _config(value: Any) -> Any:
    if isinstance(value, GpuAllocation):
        return value
    if not isinstance(value, str):
        raise ValueError('expected GPUs in quotes, such as "4x A100"')  # noqa: TRY004 pydantic makes faults of these
    return parse_gpu_config(value)


def _figure(value: Any) -> float:
    return parse_figure(plain(value))


def _figures(value: Any) -> FigureRange:
    return value if isinstance(value, FigureRange) else parse_range(plain(value))


def _shares(value: Any) -> FigureRange:
    found = _figures(value)
    if found.high > 1:
        raise ValueError('expected a share of at most 1, such as 0.4, or "0.35-0.45"')
    return found


def _rates(value: Any) -> tuple[GpuRate, ...]:
    if not isinstance(value, dict) or not value:
        raise ValueError('expected figures by GPU, such as { "4x A100" = 900, "H100" = "350-500" }')
    return tuple(GpuRate(parse_gpu_config(str(key)), _figures(one)) for key, one in value.items())


def _spans(value: Any) -> FigureRange:
    """One duration, or two: "5m-7m"."""
    if isinstance(value, FigureRange):
        return value
    if not isinstance(value, str):
        raise ValueError('expected a duration in quotes, such as "6m" or "5m-7m"')  # noqa: TRY004
    low, dash, high = value.partition("-")
    found = FigureRange(parse_duration(low), parse_duration(high)) if dash else exactly(parse_duration(low))
    if found.low > found.high:
        raise ValueError('expected the shorter duration first, such as "5m-7m"')
    return found


def _json(*kinds: str, example: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": list(kinds) if len(kinds) > 1 else kinds[0], "examples": [example]})


Figure = Annotated[float, PlainValidator(_figure), _json("number", "string", example="10B")]
Figures = Annotated[FigureRange, PlainValidator(_figures), _json("number", "string", example="350-500")]
Shares = Annotated[FigureRange, PlainValidator(_shares), _json("number", "string", example=0.4)]
Rates = Annotated[tuple[GpuRate, ...], PlainValidator(_rates), _json("object", example={"4x A100": 900})]
Spans = Annotated[FigureRange, PlainValidator(_spans), _json("string", example="5m-7m")]
GpuConfig = Annotated[GpuAllocation, PlainValidator(_config), _json("string", example="4x A100")]


class JobTable(WorkKeys):
    """`[watch.job]`: the job that `max_job_cost` refers to."""

    hours: Figures | None = Field(default=None, description='Hours of work on the GPUs of `on`: 72, or "60-80".')
    on: GpuConfig | None = Field(
        default=None, description='GPUs that hours refers to, such as "4x A100". Default: those of the watch.'
    )
    speedup: Rates | None = Field(
        default=None,
        description='Speed of other GPUs relative to `on`: { "4x H100" = 2.5 }; without a count: per GPU.',
    )
    tokens: Figure | None = Field(default=None, description='Tokens of the whole job, instead of hours: 1e9 or "10B".')
    tokens_per_s: Rates | None = Field(
        default=None, description='Measured tokens per second: { "2x H100" = "350-500", "RTX 4090" = 40 }.'
    )
    model: AModel | None = Field(
        default=None,
        description='Size ("70B") or name of the model; sets the memory it needs and the FLOPs per token.',
    )
    precision: APrecision | None = Field(default=Precision.BF16, description="Precision of the stored weights.")
    utilisation: Shares | None = Field(
        default=None,
        description='Share of the nominal FLOP/s reached: 0.4, or "0.35-0.45"; for GPUs without a measured speed.',
    )
    scaling: Annotated[Number, Field(gt=0, le=1)] = Field(
        default=1.0, description="Speed that each further GPU of an offer adds, as a share of one GPU."
    )
    memory_gb: Measure | None = Field(
        default=None, description="Total GPU memory in GB. Default: what the model needs. 0: any."
    )
    setup: Spans | None = Field(default=None, description='Time of the one-time set-up: "10m", or "5m-15m".')
    load: Spans | None = Field(default=None, description='Time to load the model at every start: "5m-7m".')
    image_gb: Measure = Field(default=0.0, description="Image size in GB, pulled at every start.")
    download_mbps: Annotated[Measure, Field(gt=0)] | None = Field(
        default=None, description="Mbit/s to assume if an offer does not state it."
    )
    checkpoint_every: SpanFrom1s | None = Field(
        default=None, description="Checkpoint interval: the most work that an interruption loses."
    )
    within: SpanFrom1s | None = Field(
        default=None, description="Maximum duration of the whole job; slower offers are rejected."
    )
    interruptions_per_day: Measure | None = Field(
        default=None,
        description="Expected interruptions per day on interruptible offers. Required with spot.",
    )

    @model_validator(mode="after")
    def _check_memory(self) -> JobTable:
        self._memory_gb()
        return self

    def value(self) -> JobSpec:
        """Return the value that the engine uses."""
        precision = self.precision or Precision.BF16
        keys = {name: name.removesuffix("_s") for name in JobSpec.__struct_fields__}
        found = {name: getattr(self, key) for name, key in keys.items() if key in type(self).model_fields} | {
            "speedup": self.speedup or (),
            "tokens_per_s": self.tokens_per_s or (),
            "flop": self._flop(),
            "decoding": self._decoding(),
            "fp8": precision is Precision.FP8,
            "fp32": precision is Precision.FP32,
            "bf16": self.model is not None and precision is Precision.BF16,
            "memory_gb": self._memory_gb(),
            "setup_s": self.setup or exactly(0.0),
            "load_s": self.load or exactly(0.0),
            "checkpoint_s": self.checkpoint_every,
            "interruptions_per_day": self.interruptions_per_day or 0.0,
        }
        return JobSpec(**found)

    def _flop(self) -> float | None:
        if self.model is None or self.tokens is None:
            return None
        if self.method == "inference":
            return inference_flop(self.model.active_params, self.tokens)
        return training_flop(self.model.active_params, self.tokens, full=self.method == "full")

    def _decoding(self) -> Decoding | None:
        if self.model is None or self.method != "inference":
            return None
        return Decoding(
            read_gb=gb_read_per_step(self._workload(self.model)),
            batch=self.batch,
            flop_per_token=inference_flop(self.model.active_params, 1.0),
        )

    def _memory_gb(self) -> float:
        if self.memory_gb is not None:
            return self.memory_gb
        return 0.0 if self.model is None else memory_need(self._workload(self.model)).gb

    def _workload(self, model: LanguageModel) -> Workload:
        keys = {key: getattr(self, key) for key in WorkKeys.model_fields}
        return Workload(model=model, precision=self.precision or Precision.BF16, **keys)


WatchJob = Annotated[JobSpec, Written(JobTable, JobTable.value)]


def job_of(table: Any) -> JobSpec | None:
    """The job whose cost a watch limits. Without one: a launch that runs for as long as it may."""
    if table.job is not None or table.max_job_cost is None or table.launch is None:
        return table.job  # type: ignore[no-any-return]
    longest_s = table.launch.max_runtime_s
    return None if longest_s is None else JobSpec(hours=exactly(longest_s / HOUR_S))


def highest_usd_gpu_hour(job: JobSpec, most_usd: Decimal, gpus: Iterable[str], counts: range) -> Decimal:
    """Return a GPU price that is not exceeded by any offer on which the job's work alone stays within the limit.

    0: there is no such price.
    """
    found = (_gpu_ceiling(job, most_usd, gpu, count) for gpu in gpus for count in counts)
    highest = max((one for one in found if one is not None), default=Decimal(0))
    return min(highest, _MOST_USD).quantize(_FINE, ROUND_CEILING)


def _gpu_ceiling(job: JobSpec, most_usd: Decimal, gpu: str, count: int) -> Decimal | None:
    hours = hours_on(job, gpu, count)
    return None if isinstance(hours, str) else usd_per_hour(most_usd, hours.value.high, count)


def usd_per_hour(most_usd: Decimal, hours: float, count: int = 1) -> Decimal:
    """Return the price of an hour at which these hours cost that much.

    With a small margin: hours are floats and the job's cost is rounded; the job's own limit is exact.
    """
    if hours < _SHORTEST_H:
        return _MOST_USD
    return (most_usd + _FINE) / (Decimal(hours) * count) * Decimal("1.000000001")
