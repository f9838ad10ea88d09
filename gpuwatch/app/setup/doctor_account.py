"""Account checks of `gpuwatch doctor`: permissions of the key, balance, rented instances.

All queries only read: nothing is rented, changed or ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch import providers
from gpuwatch.app.launches.launches import unknown_instances
from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.provider_access import is_polled_for
from gpuwatch.domain.launches.instance import LABEL_PREFIX
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import dollars
from gpuwatch.domain.market.offer import priced_units
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.errors import GpuwatchError, KeyRejected
from gpuwatch.ports.findings import Finding

if TYPE_CHECKING:
    from gpuwatch.ports import Instance, Launcher
    from gpuwatch.settings import Settings

_MIN_CREDIT_USD = 1.0
_MAY: Mapping[str, str] = {"list": "list instances", "credit": "read the credit", "charges": "read charges"}


class KnownLaunches(msgspec.Struct, frozen=True, kw_only=True):
    """The launches in the store, newest first."""

    launches: Sequence[Launch] = ()
    foreign_instances: Mapping[str, frozenset[str]] = {}  # by provider: labelled instances that are known to be foreign

    def alive(self, provider: str) -> list[Launch]:
        """The active launches at one provider."""
        return [launch for launch in self.launches if launch.provider == provider and not launch.is_over]


class AccountAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of a provider; errors take the place of missing answers."""

    instances: Sequence[Instance] | GpuwatchError
    credit_usd: float | GpuwatchError | None
    charges: Sequence[Any] | GpuwatchError | None

    @property
    def errors(self) -> dict[str, GpuwatchError]:
        """The errors, by query."""
        return {name: answer for name, answer in self._by_query.items() if isinstance(answer, GpuwatchError)}

    @property
    def answered_queries(self) -> frozenset[str]:
        """The answered queries. None means that the provider never reports the value."""
        return frozenset(
            name for name, answer in self._by_query.items() if not isinstance(answer, GpuwatchError | None)
        )

    @property
    def _by_query(self) -> dict[str, Any]:
        return {"list": self.instances, "credit": self.credit_usd, "charges": self.charges}


def account_findings(
    settings: Settings, name: str, launcher: Launcher, rights: Mapping[str, str], repository: KnownLaunches
) -> Iterator[Finding]:
    """Query an account with a key.

    Args:
        rights: the provider's names of the permissions to "list", "rent", read "credit" and "charges".
    """
    account = query_account(launcher)
    wanting = renting_watches(settings, name)
    if (
        not account.answered_queries
        and account.errors
        and all(isinstance(error, KeyRejected) for error in account.errors.values())
    ):
        why = account.errors["list"]
        yield Finding(area=name, state="fault", text=f"the key does not work: {why}", mend="renew the key")
    else:
        yield from _rights(name, account, rights, bool(wanting))
        yield from _may_rent(name, rights, repository, ZoneInfo(settings.timezone)) if wanting else ()
    if not isinstance(account.credit_usd, GpuwatchError) and account.credit_usd is not None:
        yield from (_hour(settings, name, watch, account.credit_usd) for watch in wanting)
    listed = None if isinstance(account.instances, GpuwatchError) else account.instances
    yield from rented_findings(name, listed, repository)


def query_account(launcher: Launcher) -> AccountAnswers:
    """Send three read-only queries."""
    yesterday = real_now().date() - timedelta(days=1)
    return AccountAnswers(
        instances=_answer(launcher.list_instances),
        credit_usd=_answer(launcher.credit_usd),
        charges=_answer(lambda: launcher.charges(yesterday, yesterday)),
    )


def renting_watches(settings: Settings, provider: str) -> list[Watch]:
    """The watches that rent there, or would without `dry_run`."""
    return [watch for watch in settings.watches if watch.rents_itself and is_polled_for(provider, watch)]


def image_findings(settings: Settings, provider: str) -> Iterator[Finding]:
    """Report that a watch's `image` has no effect if gpuwatch rents virtual machines."""
    info = providers.info(provider)
    then = "onstart is run by the machine" if info.runs_onstart else "onstart is refused"
    for watch in renting_watches(settings, provider):
        if info.runs_image(watch.launch.runtype if watch.launch else ""):
            continue
        text = f"rents out virtual machines: the image of {watch.name!r} is ignored, and {then}"
        mend = "list the watch's `providers`"
        if info.runs_onstart:
            mend += ", or start the container in onstart"
        yield Finding(area=provider, state="note", text=text, mend=mend)


def rented_findings(name: str, listed: Sequence[Instance] | None, repository: KnownLaunches) -> Iterator[Finding]:
    """Launches that wait for the owner, and differences between the provider's list and the launches.

    Args:
        listed: None: the instances are unknown.
    """
    for launch in repository.alive(name):
        yield from _waiting(name, launch)
        yield from _unlisted_finding(name, launch, listed) if listed is not None else ()
    for instance in unknown_instances(listed or (), repository.alive(name), name):
        if instance.instance_id not in repository.foreign_instances.get(name, ()):
            text = f"instance {instance.instance_id} has a label {LABEL_PREFIX}… but belongs to no active launch"
            yield Finding(area=name, state="fault", text=text, mend=f"gpuwatch launches adopt {instance.instance_id}")


def _waiting(name: str, launch: Launch) -> Iterator[Finding]:
    if launch.state is LaunchState.HELD:
        text = f"launch {launch.launch_id} is held: look for the label {launch.label} there; its budget stays reserved"
        mend = f"run gpuwatch launches resolve {launch.launch_id} --absent, or --adopt INSTANCE"
        yield Finding(area=name, state="fault", text=text, mend=mend)
    elif launch.state in {LaunchState.UNKNOWN, LaunchState.STOPPING}:
        waiting_for = "waiting for its instance" if launch.state is LaunchState.UNKNOWN else "ending"
        yield Finding(
            area=name, state="note", text=f"launch {launch.launch_id} is {waiting_for}: keep gpuwatch run running"
        )


def _unlisted_finding(name: str, launch: Launch, listed: Sequence[Instance]) -> Iterator[Finding]:
    is_active = launch.state in {LaunchState.STARTING, LaunchState.RUNNING} and launch.instance_id is not None
    if is_active and launch.instance_id not in {instance.instance_id for instance in listed}:
        text = f"launch {launch.launch_id} is {launch.state.value}, but instance {launch.instance_id} is not listed"
        mend = f"if it is gone, run: gpuwatch launches stop {launch.launch_id}"
        yield Finding(area=name, state="fault", text=text, mend=mend)


def _answer(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except GpuwatchError as error:
        return error


def _rights(
    name: str, account: AccountAnswers, rights: Mapping[str, str], has_renting_watch: bool
) -> Iterator[Finding]:
    may = [words for right, words in _MAY.items() if right in account.answered_queries]
    if may:
        credit = account.credit_usd
        text = f"the key works; it may {', '.join(may)}"
        if isinstance(credit, float | int):
            text += f"; credit {dollars(credit)}"
        is_low = isinstance(credit, float | int) and credit < _MIN_CREDIT_USD
        yield Finding(area=name, state="note" if is_low else "ok", text=text)
    for query, error in account.errors.items():
        if isinstance(error, KeyRejected):
            state = "fault" if has_renting_watch and query == "list" else "note"
            mend = (
                f"grant the key the permission {rights[query]}" if query in rights else "grant the key more permissions"
            )
            yield Finding(area=name, state=state, text=f"the key may not {_MAY[query]}: {error}", mend=mend)
        else:
            yield Finding(area=name, state="note", text=f"no answer to the request to {_MAY[query]}: {error}")


def _may_rent(name: str, rights: Mapping[str, str], repository: KnownLaunches, zone: tzinfo) -> Iterator[Finding]:
    """No query shows whether the key may rent. The last launch shows it for the key of that time."""
    called = f" ({rights['rent']})" if "rent" in rights else ""
    tried = [launch for launch in repository.launches if launch.provider == name and not launch.dry_run]
    last = next(
        (launch for launch in tried if launch.instance_id is not None or launch.ended_because(EndReason.KEY)), None
    )
    if last is None:
        text = f"only a launch shows whether the key may rent and end{called}: there was none yet"
        yield Finding(area=name, state="note", text=text)
    elif last.instance_id is None:
        text = (
            f"the last order was refused because of the key, {format_moment(last.intended_at, zone)}: {last.end_reason}"
        )
        yield Finding(area=name, state="fault", text=text, mend=f"grant the key the permission to rent{called}")
    else:
        text = f"renting{called} worked on {format_moment(last.intended_at, zone)}, with the key used then"
        yield Finding(area=name, state="ok", text=text)


def _hour(settings: Settings, name: str, watch: Watch, credit_usd: float) -> Finding:
    """Whether the balance covers one hour of the most expensive offer that a watch may rent."""
    bid = watch.launch.bid if watch.launch else None
    per_gpu = max(watch.max_price_usd_gpu_hour, bid.max_usd_gpu_hour if bid else Decimal(0))
    hour = per_gpu * priced_units(watch.gpu_count_max)
    gpus = count_text(watch.gpu_count_max, "GPU") if watch.gpu_count_max else "no GPU"
    cost_text = f"one hour of {watch.name!r} ({gpus}, at most {dollars(hour)})"
    if credit_usd >= hour:
        return Finding(area=name, state="ok", text=f"the balance covers {cost_text}")
    later = "it would not rent at that price" if settings.dry_run else "it does not rent at that price"
    return Finding(area=name, state="note", text=f"the balance does not cover {cost_text}: {later}", mend="add credit")
