"""Metrics in Prometheus' text format, for `/metrics` and for the node exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.app.setup.metric_specs import METRICS, REACTION_BUCKETS_S, MetricKind, MetricSpec
from gpuwatch.app.setup.metrics import MetricValues
from gpuwatch.atomic_file import atomic_file
from gpuwatch.errors import UsageError
from gpuwatch.installation import install_hint

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def require_metrics_extra() -> None:
    """Raises UsageError: the extra is not installed; the line states how to install it."""
    if find_spec("prometheus_client") is None:
        raise UsageError(f"metrics require prometheus-client: {install_hint('metrics')}")


def exposition(values: MetricValues) -> bytes:
    """The metrics as text. Raises UsageError: the extra is not installed."""
    require_metrics_extra()
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - an extra

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(values))
    return generate_latest(registry)


def write_textfile(path: Path, values: MetricValues) -> None:
    """Replace a file atomically: a scrape sees the old one or the new one. Raises UsageError: it cannot be written."""
    text = exposition(values)
    try:
        with atomic_file(path) as part:
            part.write_bytes(text)
            part.chmod(0o644)  # the exporter may run as another user
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


class _Collected:
    """A collector in the sense of the library: the values are already read."""

    def __init__(self, values: MetricValues) -> None:
        self._found = values

    def collect(self) -> Iterator[Metric]:
        """Every metric that has a value."""
        for spec in METRICS:
            if spec.kind is MetricKind.HISTOGRAM:
                if self._found.values.get("gpuwatch_store_readable", {}).get((), 0.0):
                    yield _histogram(spec, self._found.reaction_s)
            elif spec.name in self._found.values:
                yield self._family(spec)

    def _family(self, spec: MetricSpec) -> Metric:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - an extra

        kind = CounterMetricFamily if spec.kind is MetricKind.COUNTER else GaugeMetricFamily
        family = kind(spec.name, f"{spec.about}.", labels=spec.labels)
        for labels, value in sorted(self._found.values[spec.name].items()):
            family.add_metric(labels, value)
        return family


def _histogram(spec: MetricSpec, observed: Sequence[float]) -> Metric:
    from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415 - an extra

    buckets = [(str(edge), float(sum(value_s <= edge for value_s in observed))) for edge in REACTION_BUCKETS_S]
    family = HistogramMetricFamily(spec.name, f"{spec.about}.", labels=spec.labels)
    family.add_metric((), [*buckets, ("+Inf", float(len(observed)))], sum(observed))
    return family
