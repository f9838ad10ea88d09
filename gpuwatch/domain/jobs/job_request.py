"""The keys of `gpuwatch plan job`, each declared once: a job, and where it may run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PrivateAttr, field_validator, model_validator
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.plan.plan_schema import OfferKeys
from gpuwatch.domain.plan.workload import ModelKeys
from gpuwatch.domain.setup.fields import Measure, SpanFrom1s, Switch, Whole, Words, read_env_text
from gpuwatch.domain.watches.watch_job_schema import Figure, Figures, JobTable, Spans

_RATES = ("speedup", "tokens_per_s")


def _count(value: Any) -> Any:
    """N, "MIN-MAX", or `{ min, max }` as in a job file."""
    if isinstance(value, Mapping) and value and set(value) <= {"min", "max"}:
        return f"{value.get('min', 1)}-{value.get('max', 10_000)}"
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError('expected a number of GPUs, or a range such as "1-8"')  # noqa: TRY004 a fault of pydantic
    return str(value)


class JobRequest(OfferKeys, ModelKeys, JobTable):
    """A job and where it may run: `[watch.job]`, the workload, and the figures of the planner alone."""

    samples: Figure | None = Field(default=None, description='Number of samples in the data: "52k".')
    tokens_per_sample: Figure | None = Field(default=None, description="Tokens per sample.")
    epochs: Figure | None = Field(default=None, description="Passes over the data. Default: 1.")
    prompt_tokens: Figure | None = Field(default=None, description="With inference: total prompt tokens.")
    download_gb: Measure | None = Field(
        default=None, description="GB the job downloads. Default: the model and its data."
    )
    upload_gb: Measure = Field(default=0.0, description="GB the job uploads.")
    disk_gb: Annotated[Measure, Field(ge=1)] | None = Field(
        default=None, description="Disk in GB; part of the price. Default: model, data and a checkpoint."
    )
    preloaded: Switch = Field(default=False, description="Image and model are already on the machine.")
    engineer_hours: Measure = Field(default=0.0, description="Hours of engineering work.")
    engineer_usd_hour: Measure = Field(default=0.0, description="USD per engineering hour.")
    prepare_hours: Measure = Field(default=0.0, description="Hours of data preparation on a machine without GPUs.")
    prepare_usd_hour: Figures = Field(
        default=FigureRange(0.03, 0.10), description="USD per hour of that machine; the default is the articles'."
    )
    debug_hours: Measure = Field(default=0.0, description="Hours of debugging on the GPUs, before the job.")
    restarts_per_day: Measure = Field(
        default=0.0,
        description="Restarts a day of the job itself, on the same machine: crashes, changed code.",
    )
    cached_load: Spans | None = Field(
        default=None,
        description='Time to load a model whose files are on the machine: at such restarts, and with preloaded: "30s".',
    )
    count: Annotated[str, BeforeValidator(_count)] | None = Field(
        default=None, description='Number of GPUs in an offer, 4 or "1-8".'
    )
    provider: Words = Field(default=(), description="Only this provider; may be repeated.")
    verified: Switch = Field(default=False, description="Only verified hosts.")
    timeout: SpanFrom1s = Field(default=60.0, description="With poll: longest wait for all providers. Default: 60s.")
    limit: Whole = Field(default=20, ge=1, le=5000, description="Number of offers shown.")
    candidates: Words = Field(default=(), description='Cards at a price, instead of offers: "4x A100 @ 1.20 for 72h".')
    commission: Annotated[Measure, Field(le=10)] = Field(
        default=0.0, description="Commission on top of the candidates' prices, such as 0.2."
    )
    disk_usd_gb_month: Measure = Field(default=0.0, description="Candidates: price of the disk in USD per GB-month.")
    download_usd_gb: Measure | None = Field(default=None, description="Candidates: price of traffic in USD per GB.")
    upload_usd_gb: Measure | None = Field(default=None, description="Candidates: price of traffic in USD per GB.")
    min_billing: SpanFrom1s = Field(default=0.0, description="Candidates: minimum billing, such as 1h.")
    credit: Measure = Field(default=0.0, description="Free credit in USD, subtracted from the total.")
    max_cost: Annotated[Measure, Field(gt=0)] | None = Field(
        default=None, description="Maximum cost of the job in USD: adds a verdict (feasible, uncertain, not feasible)."
    )

    what_if: Switch = Field(
        default=False, description="Candidates: what precision, kernels, checkpointing and batch change, instead."
    )

    _written: dict[str, Any] = PrivateAttr(default_factory=dict)

    @field_validator(*_RATES, mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        """One or several texts such as "4x H100=2.5", besides a table."""
        return _rates(value)

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, values: Any, handler: ValidatorFunctionWrapHandler) -> JobRequest:
        found: JobRequest = handler(values)
        if isinstance(values, Mapping):
            for key in (key for key in JobTable.model_fields if key in values):
                value = read_env_text(values[key], JobTable.model_fields[key].annotation)
                found._written[key] = _rates(value) if key in _RATES else value
        return found

    @property
    def written(self) -> Mapping[str, Any]:
        """The keys of `[watch.job]` that are stated, as they were written."""
        return self._written

    @property
    def max_usd(self) -> float | None:
        """The highest cost before free credit; None: no limit."""
        return None if self.max_cost is None else self.max_cost + self.credit


def _rates(value: Any) -> Any:
    """A table of figures by GPU, from texts such as "4x H100=2.5"; anything else unchanged."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(one, str) for one in texts):
        return value
    pairs = {}
    for text in texts:
        gpus, _, figure = text.rpartition("=")
        if not gpus.strip():
            raise ValueError(f'{text!r}: expected GPUs and a number, such as "4x H100=2.5"')
        pairs[gpus.strip()] = figure.strip()
    return pairs
