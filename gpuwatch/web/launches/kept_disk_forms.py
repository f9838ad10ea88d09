"""The forms that stop a machine with its disk kept, and start it again."""

from __future__ import annotations

from collections.abc import Callable

from gpuwatch.app.launches.keep_disk import request_keep, request_start
from gpuwatch.app.launches.launches import launch_details
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.market.money import dollars, hourly_text, usd
from gpuwatch.errors import GpuwatchError
from gpuwatch.language import translate as _
from gpuwatch.web.launches.machine_text import machine_name, provider_name
from gpuwatch.web.page import Confirm, FormAction, FormResult, Redirect, View, is_confirmed


def _keep(view: View) -> FormResult:
    launch = _launch(view)
    if not is_confirmed(view):
        question = _("Stop {machine} at {provider} and keep its disk?").format(
            machine=machine_name(launch), provider=provider_name(launch)
        )
        disk = launch.with_commission(launch.disk_microusd_hour) * 24
        facts = [
            (_("Cost so far"), dollars(usd(cost_microusd(launch, view.now)))),
            (_("Its disk"), _("{amount} a day while it is kept").format(amount=dollars(usd(disk)))),
            (_("To start it again"), _("Its GPUs must be free: meanwhile, others may rent them.")),
        ]
        return Confirm(question=question, button=_("Stop it, keep the disk"), back=_page_of(launch), facts=tuple(facts))
    return _asked(view, launch, request_keep, _("It is being stopped; this page shows when the provider confirms it."))


def _start(view: View) -> FormResult:
    launch = _launch(view)
    if not is_confirmed(view):
        question = _("Start {machine} at {provider} again?").format(
            machine=machine_name(launch), provider=provider_name(launch)
        )
        facts = ((_("Price"), hourly_text(launch.price_microusd_hour)),)
        return Confirm(question=question, button=_("Start it"), back=_page_of(launch), facts=facts)
    return _asked(view, launch, request_start, _("It is being started; this page shows when it runs."))


def _asked(view: View, launch: Launch, request: Callable[..., tuple[Launch, bool]], done: str) -> FormResult:
    home = _page_of(launch)
    try:
        changed = request(view.settings, launch.launch_id, actor=view.actor)[1]
    except GpuwatchError as error:
        return Redirect(text=str(error), to=home, is_error=True)
    return Redirect(text=done if changed else _("Nothing changed: that is already on its way."), to=home)


def _launch(view: View) -> Launch:
    return launch_details(view.settings, view.path["id"], view.now).launch


def _page_of(launch: Launch) -> str:
    return f"/launches/{launch.launch_id}"


KEPT_DISK_ACTIONS = (
    FormAction(path="/launches/{id}/keep-disk", scope="manage", run=_keep),
    FormAction(path="/launches/{id}/start", scope="manage", run=_start),
)
