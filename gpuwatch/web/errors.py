"""The response to an error: a page for a browser, `application/problem+json` for other clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from gpuwatch.web.problems import HttpProblem, problem_response
from gpuwatch.web.rendering import render, wants_page

if TYPE_CHECKING:
    from gpuwatch.web.context import WebContext


def error_response(request: Request, context: WebContext, problem: HttpProblem) -> Response:
    """Return a page if a browser requests one (with 401 the login page), else JSON."""
    if not wants_page(request) or problem.status == 421:
        return problem_response(problem)
    template = "login.html" if problem.status == 401 else "error.html"
    return render(request, context, template, {"problem": problem}, status=problem.status, headers=problem.headers)
