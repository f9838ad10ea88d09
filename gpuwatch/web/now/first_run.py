"""The first steps of a new owner on Now: a watch, a provider's key, where alerts go. Each writes the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gpuwatch.app.owner_audit import record_audit
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.domain.market.money import rate_text
from gpuwatch.errors import GpuwatchError, SettingsError
from gpuwatch.language import translate as _
from gpuwatch.web.page import FormAction, FormResult, Redirect, Rerender, View

if TYPE_CHECKING:
    from gpuwatch.app.market.provider_status import ProviderStatus

_STEPS = ("watch", "key", "channel")


def first_run(view: View, providers: Sequence[ProviderStatus]) -> Mapping[str, Any]:
    """The values of the three steps; none if they are done. What is left stays while there is one watch."""
    settings = view.settings
    if len(settings.watches) > 1 or settings.left_out or (settings.watches and settings.channels):
        return {"steps": None}
    from gpuwatch.app.setup.first_watch.first_steps import gpu_presets, key_provider  # noqa: PLC0415 seldom: pydantic

    lacking = key_provider(settings)
    return {
        "steps": {
            "has_watch": bool(settings.watches),
            "presets": () if settings.watches else gpu_presets(settings, view.now),
            "has_key": lacking is None or any(one.has_key for one in providers),
            "key_of": None if lacking is None else provider_title(lacking),
            "has_channel": bool(settings.channels),
            "typed": {"gpu": "", "max_price": "", "channel": "", **view.form},
            "faults": dict.fromkeys(_STEPS, ""),
        },
        "rate_text": rate_text,
    }


def _act(view: View, step: str, act: Callable[[View], str]) -> FormResult:
    """Carry out a step; a fault is shown at its field, and what was typed stays."""
    from gpuwatch.app.market.provider_status import provider_statuses  # noqa: PLC0415

    try:
        text = act(view)
    except GpuwatchError as error:
        lines = error.faults if isinstance(error, SettingsError) else [str(error)]
        values = first_run(view, provider_statuses(view.settings, only_enabled=True, with_polling=False))
        if values["steps"] is None:
            return Redirect(text=lines[0], to="/", is_error=True)
        return Rerender(
            values={
                **values,
                "steps": {**values["steps"], "faults": {**values["steps"]["faults"], step: " ".join(lines)}},
            }
        )
    view.owner.reload()
    record_audit(view.settings, view.actor, f"first steps: {step} set", subject=step)
    return Redirect(text=text, to="/")


def _add_watch(view: View) -> str:
    from gpuwatch.app.setup.first_watch.first_steps import write_first_alert  # noqa: PLC0415

    form = view.form
    name = write_first_alert(view.owner.config, view.settings, form.get("gpu", ""), form.get("max_price", ""))
    return _("Watch {watch} is written to the settings file.").format(watch=name)


def _set_key(view: View) -> str:
    from gpuwatch.app.setup.first_watch.first_steps import write_key  # noqa: PLC0415

    return write_key(view.owner.config, view.settings, view.form.get("key", ""))


def _set_channel(view: View) -> str:
    from gpuwatch.app.setup.first_watch.first_steps import write_channel  # noqa: PLC0415

    title = write_channel(view.owner.config, view.settings, view.form.get("channel", ""), view.form)
    return _("A test message is on its way to you. Alerts go to {channel}.").format(channel=title)


FIRST_STEPS = tuple(
    FormAction(path=f"/first/{step}", scope="manage", run=partial(_act, step=step, act=act))
    for step, act in zip(_STEPS, (_add_watch, _set_key, _set_channel), strict=True)
)
