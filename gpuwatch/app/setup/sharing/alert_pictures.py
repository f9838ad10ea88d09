"""The chart of an alert about an offer: seven days of its watch, or of its GPU, drawn when the alert is sent.

It is drawn once, for all channels. A picture never delays an alert: what is not drawn within a few seconds, for
whatever reason, is left out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from gpuwatch.bootstrap import real_now
from gpuwatch.language import current_language
from gpuwatch.ports.alerts import AlertPicture, PictureChannel
from gpuwatch.redaction import redact

if TYPE_CHECKING:
    from gpuwatch.app.setup.sharing.shared_charts import SharedChart
    from gpuwatch.bootstrap.service import Service
    from gpuwatch.daemon.task_progress import TaskProgress
    from gpuwatch.ports import Alert
    from gpuwatch.settings import Settings

log = logging.getLogger(__name__)

DRAWN_WITHIN_S = 3.0
_KEPT = 8  # alerts whose picture another channel may still want


class _Drawing(NamedTuple):
    """One chart, from its begin on; `drawn` is empty until it is there, or if it failed."""

    thread: threading.Thread
    drawn: list[AlertPicture]


class AlertPictures:
    """Draws the charts of alerts (see `ports.alerts.PictureSource`). Thread-safe: all channels share it.

    Args:
        patience_s: how long an alert waits for its picture.
    """

    def __init__(self, settings: Settings, patience_s: float = DRAWN_WITHIN_S) -> None:
        self._settings = settings
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._drawings: dict[tuple[str, str], _Drawing] = {}  # by alert and language

    def picture_for(self, alert: Alert) -> AlertPicture | None:
        """See `PictureSource`."""
        alert = alert.parts[0] if alert.parts else alert
        if not (alert.kind.rules.is_offer and alert.offers):
            return None
        drawing = self._drawing_of(alert)
        if drawing is None:
            return None
        drawing.thread.join(self._patience_s)
        return drawing.drawn[0] if drawing.drawn else None

    def _drawing_of(self, alert: Alert) -> _Drawing | None:
        """The drawing of this alert; None: another is being drawn, and a slow store gets one question at a time."""
        key = alert.alert_id, current_language()
        with self._lock:
            known = self._drawings.get(key)
            if known is not None and (known.drawn or known.thread.is_alive()):
                return known
            if any(one.thread.is_alive() for one in self._drawings.values()):
                return None
            drawn: list[AlertPicture] = []
            # a daemon thread: a drawing that hangs must not delay the exit of the program
            thread = threading.Thread(
                target=copy_context().run, args=(self._draw, alert, drawn), name="alert-picture", daemon=True
            )
            thread.start()
            self._drawings[key] = drawing = _Drawing(thread, drawn)
            for oldest in [*self._drawings][:-_KEPT]:
                del self._drawings[oldest]
            return drawing

    def _draw(self, alert: Alert, drawn: list[AlertPicture]) -> None:
        try:
            chart = self._chart(alert)
            if chart.chart is not None:
                drawn.append(AlertPicture(chart.png(), f"{chart.title}. {chart.summary}"))
        except Exception as error:  # whatever a picture costs, the alert is sent without it
            log.warning("an alert is sent without its chart: %s: %s", type(error).__name__, redact(str(error)))

    def _chart(self, alert: Alert) -> SharedChart:
        """The prices that the watch would have matched, with its limit; of a watch that is gone or new, its GPU's."""
        from gpuwatch.app.setup.sharing.shared_charts import gpu_chart, watch_chart  # noqa: PLC0415 only where needed

        now = real_now()
        if any(watch.name == alert.watch for watch in self._settings.watches):
            chart = watch_chart(self._settings, alert.watch or "", now)
            if chart.chart is not None:
                return chart
        return gpu_chart(self._settings, alert.offers[0].gpu, now)


@contextmanager
def alert_pictures(service: Service, _progress: TaskProgress) -> Iterator[None]:
    """Draw for the channels that can send pictures while a service runs (see `daemon.process.Interface`)."""
    if find_spec("resvg_py") is not None:
        pictures = AlertPictures(service.settings)
        for channel in service.channels.values():
            if isinstance(channel, PictureChannel):
                channel.pictures = pictures
    yield
