"""`gpuwatch rent`: one offer, priced again, confirmed once, and rented under every budget."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, command_actor
from gpuwatch.cli.launches.approvals import EXIT_OF_OUTCOME
from gpuwatch.cli.options import Between, duration_option, json_option, provider_option, settings_option
from gpuwatch.cli.output import displayable, json_out
from gpuwatch.domain.market.money import per_hour, usd
from gpuwatch.domain.market.offer import clean, hardware_text
from gpuwatch.domain.setup.durations import format_duration
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.app.launches.requests.rent import RentQuote, RentRefusal, RentRequest
    from gpuwatch.settings import Settings


@click.command(
    cls=Command,
    examples=("gpuwatch rent 8214133 --provider vastai --for 4h", "gpuwatch rent 8214133 --for 90m --yes --json"),
)
@click.argument("offer_id")
@provider_option()
@duration_option("--for", "for_s", "Runtime after which it is destroyed, such as 4h.")
@click.option("--image", metavar="IMAGE", default=None, help="Container image. Default: that of [defaults.watch].")
@click.option("--disk", "disk_gb", metavar="GB", type=Between(min=1), default=None, help="Disk to rent, in GB.")
@click.option("--spot", is_flag=True, help="The interruptible variant of the offer, at its minimum bid.")
@click.option("--yes", is_flag=True, help="Do not ask; required without a terminal.")
@json_option
@settings_option
def rent(
    offer_id: str,
    provider: str | None,
    for_s: float | None,
    image: str | None,
    disk_gb: float | None,
    spot: bool,
    yes: bool,
    as_json: bool,
    settings: Settings,
) -> int:
    """Rent one offer now: its price is checked again, and budgets and pauses apply as to a watch.

    Exit codes: 0 rented, 1 refused or gone (nothing was rented; the nearest offer is named) or not confirmed, 2 usage,
    3 the provider did not answer.
    """
    from gpuwatch.app.launches.requests.rent import RentRefusal, RentRequest, quote_rent
    from gpuwatch.domain.launches.rent_terms import RentTerms

    if not for_s:
        raise UsageError("expected how long to rent it, such as --for 4h")
    if not yes and not sys.stdin.isatty():
        raise UsageError("expected --yes, as there is no terminal to ask on")
    request = RentRequest(
        provider=_provider(settings, provider),
        offer_id=offer_id,
        terms=RentTerms(max_runtime_s=for_s, image=image, disk_gb=disk_gb),
        spot=spot,
    )
    quote = quote_rent(settings, request)
    if isinstance(quote, RentRefusal):
        return _refused(quote, as_json)
    return _rent(settings, request, quote, is_confirmed=yes, as_json=as_json)


def _provider(settings: Settings, name: str | None) -> str:
    if name is not None:
        return name
    if len(settings.providers) != 1:
        raise UsageError(f"expected --provider NAME, one of {', '.join(sorted(settings.providers))}")
    return next(iter(settings.providers))


def _refused(refusal: RentRefusal, as_json: bool) -> Exit:
    if as_json:
        from gpuwatch.app.launches.requests.rent import nearest_view

        json_out({"outcome": "refused", "text": refusal.text, "nearest": nearest_view(refusal)})
    else:
        click.echo(f"nothing was rented: {clean(refusal.text, 1000)}", err=True)
    return Exit.FAILED


def _rent(settings: Settings, request: RentRequest, quote: RentQuote, *, is_confirmed: bool, as_json: bool) -> Exit:
    from gpuwatch.app.launches.approvals import approval_answer_view, approve, deny

    for line in _lines(settings, request, quote):
        click.echo(displayable(line), err=True)
    approval_id = quote.approval.approval_id
    if not is_confirmed and not click.confirm("Rent it?", err=True):
        deny(settings, approval_id, "not confirmed", actor=command_actor())
        click.echo("nothing was rented", err=True)
        return Exit.FAILED
    answer = approve(settings, approval_id, actor=command_actor())
    code = EXIT_OF_OUTCOME.get(answer.outcome, Exit.DONE)
    if as_json:
        json_out(approval_answer_view(answer))
    else:
        click.echo(clean(answer.reply.text, 1000), err=code is not Exit.DONE)
    return code


def _lines(settings: Settings, request: RentRequest, quote: RentQuote) -> list[str]:
    """What it is, and what it can cost at most."""
    from gpuwatch.app.launches.most_cost import upper_text
    from gpuwatch.app.market.outbid_risk import risk_text

    match = quote.approval.match
    offer, hourly = match.offer, usd(match.price.price_microusd_hour)
    runtime = format_duration(request.terms.max_runtime_s)
    kind = ", spot" if offer.spot else ""
    lines = [
        f"{hardware_text(clean(offer.gpu), offer.gpu_count)}{kind}, machine {clean(offer.machine_id or 'unknown')} at "
        f"{offer.provider}, {clean(offer.place or 'place unknown')}: {per_hour(hourly, least=3, most=3)}, "
        "commission and disk included"
    ]
    if quote.most_microusd is not None:
        lines.append(f"It ends after {runtime}, and costs {upper_text(quote.most_microusd)} at most.")
    if quote.risk is not None:
        lines.append(risk_text(quote.risk))
    if quote.traffic:
        lines.append(f"Traffic is charged in addition: {quote.traffic}.")
    if settings.dry_run:
        lines.append("Dry run: nothing is rented (dry_run = true).")
    elif not quote.is_followed:
        lines.append("No daemon runs: start `gpuwatch run`, or nothing ends it in time.")
    return lines
