"""Templates: Jinja with autoescape, and the formats of figures and times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from gpuwatch import __version__
from gpuwatch.app.launches.budget_uses import Glance
from gpuwatch.app.reader_text import as_datetime, clock_text, exact_text, moment_text, reader_clock, span
from gpuwatch.domain.alerts.alert import alert_for_reading
from gpuwatch.domain.market.figure_text import decimal_text, percent_text
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.watches.owner_names import plain_name
from gpuwatch.language import current_language, translate, translate_composed, translate_plural
from gpuwatch.web.components import GLOBALS, code, replaced
from gpuwatch.web.launches.machine_text import launch_chip, machine_name, machine_place
from gpuwatch.web.page_frame import MENU, TABS, client_texts, mark_current, menu_classes

if TYPE_CHECKING:
    from gpuwatch.web.context import WebContext

# of an offer, a machine, a launch, a job: with a digit, alone, or behind the word "launch"
_ID = re.compile(
    r"\b(?:(?=[a-z]*\d)[a-z0-9]{12}|\d{7,})\b|^[a-z0-9]{12}$|(?<=launch |запуск )[a-z0-9]{12}\b", re.IGNORECASE
)


def wants_page(request: Request) -> bool:
    """Whether a browser requests a page."""
    is_api = request.url.path.startswith(("/api/", "/healthz", "/metrics", "/static/"))
    return not is_api and "text/html" in request.headers.get("accept", "")


def render(
    request: Request,
    context: WebContext,
    template: str,
    values: Mapping[str, Any],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Render a page. Every template gets the links, the access and the zone in addition to its own values."""
    access = request.state.access
    shared = {
        "tabs": TABS,
        "menu": MENU,
        "glance": context.glance() if "read" in access.scopes else Glance(),
        "language": current_language(),
        "path": request.url.path,
        "is_once": request.method == "POST" or status >= 400,  # its address has nothing new to read
        "back": getattr(request.state, "back", None) or f"{request.url.path}?{request.url.query}".rstrip("?"),
        "access": access,
        "csrf_token": access.session.csrf_token if access.session else "",
        "login_field": login_field(context),
        "zone": context.settings.timezone,
        "dry_run": context.settings.dry_run,
        "client_texts": client_texts(),
        "version": __version__,
        "now": reader_clock().now,
        "clock_exact": f"{as_datetime(reader_clock().now):%H:%M:%S}",
    }
    body = environment().get_template(template).render(**shared, **values)
    return HTMLResponse(body, status_code=status, headers=dict(headers or {}))


def login_field(context: WebContext) -> str:
    """Return how a browser logs in: "code", "password" or "token"."""
    if context.credentials.is_open:
        return "code"
    return "password" if context.credentials.has_password else "token"


@cache
def environment() -> jinja2.Environment:
    """Return the templates, all with autoescape."""
    jinja_environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpuwatch.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        extensions=["jinja2.ext.i18n"],
    )
    jinja_environment.policies["ext.i18n.trimmed"] = True
    jinja_environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    # not "newstyle", which would take every % of a text for a field
    jinja_environment.install_gettext_callables(translate, translate_plural, newstyle=False)  # type: ignore[attr-defined]
    jinja_environment.filters |= {
        "usd": usd,
        "percent": percent_text,
        "span": span,
        "spoken": spoken,
        "translated": partial(alert_for_reading, has_page=True),
        "clean": clean,
        "coded": coded,
        "query": query,
    }
    jinja_environment.globals |= {
        **GLOBALS,
        "launch_chip": launch_chip,
        "machine_name": machine_name,
        "machine_place": machine_place,
        "plain_name": plain_name,
        "clock_text": clock_text,
        "exact_text": exact_text,
        "moment_text": moment_text,
        "mark_current": mark_current,
        "menu_classes": menu_classes,
    }
    return jinja_environment


def spoken(text: Any) -> Any:
    """Translate what was composed in English, such as a stored reason or an error; HTML stays as it is."""
    return text if not isinstance(text, str) or isinstance(text, Markup) else translate_composed(text)


def coded(text: Any) -> Any:
    """Mark the ids in a text as code, as a reader copies them; HTML stays as it is."""
    return text if isinstance(text, Markup) else replaced(text, _ID, lambda found: code(found[0]))


def usd(value: float | None, decimals: int = 3) -> str:
    """Format an amount of dollars; "–": unknown."""
    return decimal_text(value, decimals)


def query(values: Mapping[str, Any], **changes: Any) -> str:
    """Return `?a=1&b=2` of these values with some changed; None removes one."""
    merged = {key: value for key, value in {**values, **changes}.items() if value not in {None, ""}}
    return f"?{urlencode(merged)}" if merged else "?"
