"""POST: what a page or a command can do, too. Repeating one gives 200 and no change, except `extend` and `share`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuwatch.app.alerts import alerts
from gpuwatch.app.alerts.alerts import SilenceView
from gpuwatch.app.jobs import job_actions
from gpuwatch.app.jobs.job_series import request_series_end
from gpuwatch.app.launches import approvals
from gpuwatch.app.launches.approvals import ApprovalAnswerView
from gpuwatch.app.launches.extend import extend
from gpuwatch.app.launches.keep_disk import request_keep, request_start
from gpuwatch.app.launches.launches import resolve_absent, resolve_adopted
from gpuwatch.app.launches.requests.rent import (
    RentQuoteView,
    RentRefusal,
    RentRequest,
    nearest_view,
    quote_rent,
    rent_quote_view,
)
from gpuwatch.app.launches.stop import request_stop
from gpuwatch.app.setup.sharing.share_links import SharedThing, ShareLink, make_link, revoke_links
from gpuwatch.app.watches import pauses
from gpuwatch.app.watches.pauses import PauseView
from gpuwatch.app.watches.rehearse import RehearsalView, rehearsal_view, rehearse
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.jobs.job import JobView, job_view
from gpuwatch.domain.jobs.job_series import SeriesView, series_view
from gpuwatch.domain.launches.life.launch_record import LaunchView, launch_view
from gpuwatch.domain.launches.rent_terms import RentTerms
from gpuwatch.domain.market.json_view import JsonView, Moment
from gpuwatch.domain.setup.durations import POSITIVE_DURATION_PATTERN
from gpuwatch.engine.launches.renting.owner_decisions import ApprovalOutcome
from gpuwatch.errors import ResourceNotFound, UsageError
from gpuwatch.redaction import redact
from gpuwatch.web.api.resources import PREFIX, seconds_of
from gpuwatch.web.page_routes import form_fields
from gpuwatch.web.problems import HttpProblem, validation_text
from gpuwatch.web.request_guard import access_in
from gpuwatch.web.security.access import CSRF_HEADERS, require_csrf_token, require_scope

if TYPE_CHECKING:
    from gpuwatch.settings import Settings
    from gpuwatch.web.context import WebContext

Body = TypeVar("Body")
_FORMS = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})
_Changed = Annotated[bool, msgspec.Meta(description="False: it was so before.")]
_Watch = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Group = Annotated[str, msgspec.Meta(min_length=1, max_length=100, description="Each watch of it, instead of one.")]
_Duration = Annotated[str, msgspec.Meta(pattern=POSITIVE_DURATION_PATTERN, max_length=60, examples=["12h"])]
_Why = Annotated[str, msgspec.Meta(max_length=200, description="Reason, for your own records.")]


class EmptyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An empty body."""


class DenyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a denial."""

    why: _Why = ""


class ScopedBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A watch or a group."""

    watch: _Watch | None = None
    group: _Group | None = None


class PauseBody(ScopedBody, frozen=True, kw_only=True):
    """What to pause, and for how long."""

    duration: _Duration | None = msgspec.field(name="for", default=None)
    why: _Why = ""


class ExtendBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much longer a launch may run."""

    by: _Duration


class StartBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a launch may run that starts again; null: as its watch says."""

    duration: _Duration | None = msgspec.field(name="for", default=None)


class StopBody(StartBody, frozen=True, kw_only=True):
    """Whether its disk is kept, and for how long; null: as its watch says."""

    keep_disk: bool = False


class ExistsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The instance of a held launch."""

    instance: Annotated[str, msgspec.Meta(min_length=1, max_length=200, description="Its id at the provider.")]


class SilenceBody(ScopedBody, frozen=True, kw_only=True):
    """Which watch, or group, sends no alerts about offers, and for how long."""

    duration: _Duration = msgspec.field(name="for")


class UnsilenceBody(ScopedBody, frozen=True, kw_only=True):
    """Which watch, or group, sends alerts again."""


class ShareBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a link shows, and for how long."""

    shows: Literal["gpu", "watch", "alerts", "calendar"]
    name: Annotated[str, msgspec.Meta(max_length=200, description="Of the GPU or watch.")] = ""
    duration: _Duration = msgspec.field(name="for", default="7d")


class ResumeBody(ScopedBody, frozen=True, kw_only=True):
    """What to resume."""


class RentBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which offer to rent, and for how long."""

    provider: Annotated[str, msgspec.Meta(min_length=1, max_length=32)]
    offer: Annotated[str, msgspec.Meta(min_length=1, max_length=64, description="Its id at the provider.")]
    duration: _Duration = msgspec.field(name="for")
    image: Annotated[str, msgspec.Meta(min_length=1, max_length=500)] | None = None
    disk_gb: Annotated[float, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    spot: bool = False


class ApiAction(msgspec.Struct, frozen=True, kw_only=True):
    """One POST. `run` gets the settings, the id in the path, the body and the actor; it returns the answer."""

    path: str
    summary: str
    scope: str
    body: type[Any]
    answer: type[JsonView]
    run: Callable[[Settings, str, Any, str], JsonView]


class StoppedLaunchView(LaunchView, frozen=True, kw_only=True):
    """A launch after a request to end, stop or start it."""

    changed: _Changed


class ExtendedLaunchView(LaunchView, frozen=True, kw_only=True):
    """A launch with a later end."""

    ends_at: Annotated[Moment, msgspec.Meta(description="When it is ended.")]
    more_usd: Annotated[float, msgspec.Meta(description="The most that the added time costs.")]
    is_contract_known: Annotated[bool, msgspec.Meta(description="False: the provider's contract may end earlier.")]


class ChangedSeriesView(SeriesView, frozen=True, kw_only=True):
    """A recurring job after an action."""

    changed: _Changed


class ChangedJobView(JobView, frozen=True, kw_only=True):
    """A job after an action."""

    changed: _Changed


class PausesView(JsonView, frozen=True, kw_only=True):
    """What is paused after an action."""

    items: list[PauseView]
    changed: _Changed


class SilencesView(JsonView, frozen=True, kw_only=True):
    """Which watches are silenced after an action."""

    items: list[SilenceView]
    changed: _Changed


class RevokedLinksView(JsonView, frozen=True, kw_only=True):
    """Every link has ended."""

    revoked: bool


def _approve(settings: Settings, ask_id: str, _body: EmptyBody, actor: str) -> JsonView:
    return _approval_answer(approvals.approve(settings, ask_id, actor=actor))


def _deny(settings: Settings, ask_id: str, body: DenyBody, actor: str) -> JsonView:
    return _approval_answer(approvals.deny(settings, ask_id, body.why, actor=actor))


def _approval_answer(answer: approvals.ApprovalAnswer) -> JsonView:
    """Raise HttpProblem: 409 (decided otherwise, or refused), 503 (the provider did not answer; it stays open)."""
    view = approvals.approval_answer_view(answer)
    if answer.conflict or (answer.outcome is ApprovalOutcome.REFUSED and answer.reply.launch is None):
        raise HttpProblem(409, answer.reply.text, more={"state": view.state, "launch_id": view.launch_id})
    if answer.outcome is ApprovalOutcome.NO_ANSWER and not answer.changed:
        raise HttpProblem(503, answer.reply.text, more={"state": view.state})
    return view


def _rent(settings: Settings, _id: str, body: RentBody, _actor: str) -> JsonView:
    """Raise HttpProblem: 409 (refused or gone; `nearest` is what comes closest)."""
    request = RentRequest(
        provider=body.provider,
        offer_id=body.offer,
        terms=RentTerms(max_runtime_s=seconds_of(body.duration), image=body.image, disk_gb=body.disk_gb),
        spot=body.spot,
    )
    quote = quote_rent(settings, request)
    if isinstance(quote, RentRefusal):
        near = nearest_view(quote)
        raise HttpProblem(409, quote.text, more={"nearest": None if near is None else near.json()})
    return rent_quote_view(settings, quote, request)


def _stop(settings: Settings, launch_id: str, body: StopBody, actor: str) -> JsonView:
    if body.keep_disk:
        launch, changed = request_keep(settings, launch_id, _seconds_or_none(body.duration), actor=actor)
    else:
        launch, changed = request_stop(settings, launch_id, actor=actor)
    return StoppedLaunchView.of(launch_view(launch, real_now()), changed=changed)


def _start(settings: Settings, launch_id: str, body: StartBody, actor: str) -> JsonView:
    launch, changed = request_start(settings, launch_id, _seconds_or_none(body.duration), actor=actor)
    return StoppedLaunchView.of(launch_view(launch, real_now()), changed=changed)


def _seconds_or_none(duration: str | None) -> float | None:
    return None if duration is None else seconds_of(duration)


def _extend(settings: Settings, launch_id: str, body: ExtendBody, actor: str) -> JsonView:
    extension = extend(settings, launch_id, seconds_of(body.by), actor=actor)
    return ExtendedLaunchView.of(extension, launch_view(extension.launch, real_now()))


def _absent(settings: Settings, launch_id: str, _body: EmptyBody, actor: str) -> JsonView:
    return launch_view(resolve_absent(settings, launch_id, actor=actor), real_now())


def _exists(settings: Settings, launch_id: str, body: ExistsBody, actor: str) -> JsonView:
    return launch_view(resolve_adopted(settings, launch_id, body.instance, actor=actor), real_now())


def _cancel(settings: Settings, job_id: str, _body: EmptyBody, actor: str) -> JsonView:
    job, changed = job_actions.request_cancel(settings, job_id, actor=actor)
    return ChangedJobView.of(job_view(job), changed=changed)


def _retry(settings: Settings, job_id: str, _body: EmptyBody, actor: str) -> JsonView:
    job, changed = job_actions.retry_job(settings, job_id, actor=actor)
    return ChangedJobView.of(job_view(job), changed=changed)


def _end_series(settings: Settings, name: str, _body: EmptyBody, actor: str) -> JsonView:
    ended = request_series_end(settings, name, actor=actor)
    return ChangedSeriesView.of(series_view(ended.series), changed=ended.changed)


def _pause(settings: Settings, _id: str, body: PauseBody, actor: str) -> JsonView:
    for_s = None if body.duration is None else seconds_of(body.duration)
    changed, paused = pauses.pause(settings, body.watch, for_s, body.why, actor=actor, group=body.group)
    return PausesView(items=pauses.pause_views(paused), changed=changed)


def _resume(settings: Settings, _id: str, body: ResumeBody, actor: str) -> JsonView:
    changed, paused = pauses.resume(settings, body.watch, actor=actor, group=body.group)
    return PausesView(items=pauses.pause_views(paused), changed=changed)


def _silence(settings: Settings, _id: str, body: SilenceBody, actor: str) -> JsonView:
    alerts.silence(settings, body.watch, seconds_of(body.duration), actor=actor, group=body.group)
    return _silences(settings, changed=True)


def _unsilence(settings: Settings, _id: str, body: UnsilenceBody, actor: str) -> JsonView:
    changed = alerts.end_silence(settings, body.watch, actor=actor, group=body.group)
    return _silences(settings, changed=changed)


def _silences(settings: Settings, *, changed: bool) -> JsonView:
    return SilencesView(items=[alerts.silence_view(one) for one in alerts.silences(settings)], changed=changed)


def _rehearse(settings: Settings, name: str, _body: EmptyBody, _actor: str) -> JsonView:
    return rehearsal_view(rehearse(settings, name))


def _share(settings: Settings, _id: str, body: ShareBody, actor: str) -> JsonView:
    return make_link(settings, SharedThing(body.shows), body.name, seconds_of(body.duration), real_now(), actor=actor)


def _revoke(settings: Settings, _id: str, _body: EmptyBody, actor: str) -> JsonView:
    revoke_links(settings, real_now(), actor=actor)
    return RevokedLinksView(revoked=True)


ACTIONS = (
    ApiAction(path="/approvals/{id}/approve", summary="Approve a quote: rent at its price or less, or not at all.",
              scope="approve", body=EmptyBody, answer=ApprovalAnswerView, run=_approve),
    ApiAction(path="/approvals/{id}/deny", summary="Decline a quote; it is not offered again for a day.",
              scope="approve", body=DenyBody, answer=ApprovalAnswerView, run=_deny),
    ApiAction(path="/rent", summary="Price an offer again; to rent it, approve the quote by its `ask_id`.",
              scope="manage", body=RentBody, answer=RentQuoteView, run=_rent),
    ApiAction(path="/launches/{id}/stop", summary="End a launch, or stop it with its disk kept; confirmed later.",
              scope="manage", body=StopBody, answer=StoppedLaunchView, run=_stop),
    ApiAction(path="/launches/{id}/start", summary="Start a launch again whose disk was kept.",
              scope="manage", body=StartBody, answer=StoppedLaunchView, run=_start),
    ApiAction(path="/launches/{id}/extend", summary="Extend the runtime of a launch, if the budgets allow it.",
              scope="manage", body=ExtendBody, answer=ExtendedLaunchView, run=_extend),
    ApiAction(path="/launches/{id}/absent", summary="Close a held launch: you checked that it has no instance.",
              scope="manage", body=EmptyBody, answer=LaunchView, run=_absent),
    ApiAction(path="/launches/{id}/exists", summary="Continue a held launch: you found its instance.",
              scope="manage", body=ExistsBody, answer=LaunchView, run=_exists),
    ApiAction(path="/jobs/{id}/cancel", summary="Cancel a job by its id or name, and end its instance.",
              scope="manage", body=EmptyBody, answer=ChangedJobView, run=_cancel),
    ApiAction(path="/jobs/{id}/retry", summary="Queue a failed, cancelled or paused job again; may rent.",
              scope="manage", body=EmptyBody, answer=ChangedJobView, run=_retry),
    ApiAction(path="/series/{id}/end", summary="End a recurring job by its name, and cancel its open run.",
              scope="manage", body=EmptyBody, answer=ChangedSeriesView, run=_end_series),
    ApiAction(path="/pause", summary="Stop renting, for all watches, one, or a group.",
              scope="manage", body=PauseBody, answer=PausesView, run=_pause),
    ApiAction(path="/resume", summary="Resume renting.",
              scope="manage", body=ResumeBody, answer=PausesView, run=_resume),
    ApiAction(path="/silence", summary="Mute the offer alerts of a watch, or a group, for a while.",
              scope="manage", body=SilenceBody, answer=SilencesView, run=_silence),
    ApiAction(path="/unsilence", summary="Send the alerts of a watch, or a group, again.",
              scope="manage", body=UnsilenceBody, answer=SilencesView, run=_unsilence),
    ApiAction(path="/watches/{id}/rehearse", summary="Check everything a launch needs, without placing the order.",
              scope="manage", body=EmptyBody, answer=RehearsalView, run=_rehearse),
    ApiAction(path="/share", summary="Make a link to a chart, the alerts or the calendar, for people without a login.",
              scope="manage", body=ShareBody, answer=ShareLink, run=_share),
    ApiAction(path="/share/revoke", summary="End every shared link.",
              scope="manage", body=EmptyBody, answer=RevokedLinksView, run=_revoke),
)  # fmt: skip


def action_routes(context: WebContext) -> list[Route]:
    """Return one route for each action."""
    return [Route(PREFIX + action.path, _action_handler(context, action), methods=["POST"]) for action in ACTIONS]


def _action_handler(context: WebContext, action: ApiAction) -> Callable[[Request], Awaitable[Response]]:
    async def act(request: Request) -> Response:
        access = access_in(request)
        require_scope(access, action.scope)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        form = await form_fields(request) if kind in _FORMS else {}
        require_csrf_token(access, [form.pop("csrf_token", None), *map(request.headers.get, CSRF_HEADERS)])
        if request.query_params:
            raise HttpProblem(400, "this path accepts no parameters")
        body = _body(msgspec.json.encode(form) if kind in _FORMS else await request.body(), kind, action.body)
        actor = f"API ({access.name})"
        identity = str(request.path_params.get("id", ""))
        answer = await run_in_threadpool(_run, action, context.settings, identity, body, actor)
        return Response(msgspec.json.encode(answer), media_type="application/json")

    return act


def _run(action: ApiAction, settings: Settings, identity: str, body: Any, actor: str) -> JsonView:
    try:
        return action.run(settings, identity, body, actor)
    except ResourceNotFound:
        raise
    except UsageError as error:  # the body is valid: the state of the launch, job or settings does not allow it
        raise HttpProblem(409, redact(str(error))) from None


def _body(raw: bytes, content_type: str, kind: type[Body]) -> Body:
    """Decode the body; an empty one is an empty object. Raises HttpProblem: 400, 422."""
    if raw.strip() and content_type not in {"", "application/json", *_FORMS}:
        raise HttpProblem(422, "expected Content-Type: application/json")
    try:
        return msgspec.json.decode(raw.strip() or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise HttpProblem(422, validation_text(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise HttpProblem(400, "expected JSON") from None
