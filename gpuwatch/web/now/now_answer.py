"""The first sentence of Now: what needs its owner, and the line below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from markupsafe import Markup

from gpuwatch.app.reader_text import clock_text, span
from gpuwatch.domain.watches.watch import Action
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural
from gpuwatch.web.launches.machine_text import machines_run

if TYPE_CHECKING:
    from datetime import datetime

    from gpuwatch.domain.launches.life.owner_decisions import Pause
    from gpuwatch.domain.launches.money.launch_costs import BurnRate
    from gpuwatch.domain.watches.watch import Watch


class NowFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the sentences are about.

    Attributes:
        is_running: a daemon polls.
        silent: the providers that do not answer, with the time since.
        burn: what the machines cost, those of held launches included.
        pause: of all renting.
    """

    decisions: int
    held: int
    is_running: bool
    silent: Sequence[tuple[str, datetime | None]]
    burn: BurnRate
    pause: Pause | None
    dry_run: bool
    now: datetime


def heading(figures: NowFigures) -> str:
    """What needs the owner: the first that applies."""
    if figures.decisions:
        text = translate_plural("{count} decision waits for you", "{count} decisions wait for you", figures.decisions)
        return text.format(count=figures.decisions)
    if figures.held:
        text = translate_plural("{count} machine needs your check", "{count} machines need your check", figures.held)
        return text.format(count=figures.held)
    if not figures.is_running:
        return _("gpuwatch is not running")
    if len(figures.silent) > 1:
        return _("{count} providers do not answer").format(count=len(figures.silent))
    if figures.silent:
        return _("{provider} does not answer").format(provider=figures.silent[0][0])
    return _("All quiet")


def answer(figures: NowFigures, watches: Sequence[Watch]) -> Markup:
    """The machines and their rate, whether renting is on, and who does not answer."""
    sentences = [_machines(figures), _renting(figures, watches), *_silence(figures)]
    return Markup(" ").join(sentence for sentence in sentences if sentence)


def _machines(figures: NowFigures) -> Markup:
    return (
        machines_run(figures.burn, Markup('<b class="nw">{}{}</b>'))
        if figures.burn.launches
        else Markup.escape(_("Nothing is rented."))
    )


def _renting(figures: NowFigures, watches: Sequence[Watch]) -> str:
    if figures.dry_run:
        return _("This is a dry run.")
    if figures.pause is not None:
        if figures.pause.until is None:
            return _("Renting is paused.")
        return _("Renting is paused until {time}.").format(time=clock_text(figures.pause.until))
    if watches and all(watch.action is Action.ALERT for watch in watches):
        return _("Your watches alert you and rent nothing.")
    return _("Renting is on.")


def _silence(figures: NowFigures) -> Iterator[str]:
    for title, since in figures.silent:
        if since is None:
            yield _("{provider} does not answer.").format(provider=title)
        else:
            passed_s = (figures.now - since).total_seconds()
            yield _("{provider} has not answered for {time}.").format(provider=title, time=span(passed_s))
