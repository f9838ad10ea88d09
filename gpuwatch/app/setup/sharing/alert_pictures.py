"""The chart of an alert about an offer: seven days of its watch, or of its GPU, drawn when the alert is sent.

A picture never delays an alert: what is not drawn within a few seconds, for whatever reason, is left out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpuwatch.bootstrap import real_now
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


class AlertPictures:
    """Draws the chart of an alert (see `ports.alerts.PictureSource`).

    Args:
        patience_s: how long an alert waits for its picture.
    """

    def __init__(self, settings: Settings, patience_s: float = DRAWN_WITHIN_S) -> None:
        self._settings = settings
        self._patience_s = patience_s
        self._drawing: threading.Thread | None = None

    def picture_for(self, alert: Alert) -> AlertPicture | None:
        """See `PictureSource`."""
        alert = alert.parts[0] if alert.parts else alert
        is_drawn = alert.kind.rules.is_offer and alert.offers
        if not is_drawn or (self._drawing is not None and self._drawing.is_alive()):
            return None  # a slow store gets one question at a time
        drawn: list[AlertPicture] = []
        # a daemon thread: a drawing that hangs must not delay the exit of the program
        self._drawing = threading.Thread(
            target=copy_context().run, args=(self._draw, alert, drawn), name="alert-picture", daemon=True
        )
        self._drawing.start()
        self._drawing.join(self._patience_s)
        return drawn[0] if drawn else None

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
        for channel in service.channels.values():
            if isinstance(channel, PictureChannel):
                channel.pictures = AlertPictures(service.settings)
    yield
