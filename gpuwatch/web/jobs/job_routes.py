"""Routes of a job besides its page: parts of its log as it grows, its log and results as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from gpuwatch.app.jobs.job_output import log_part, result_file, whole_log
from gpuwatch.web.problems import HttpProblem

if TYPE_CHECKING:
    from gpuwatch.web.context import WebContext

_DIGITS_MAX = 15


def job_routes(context: WebContext) -> list[Route]:
    """Return the routes; the guard requires the scope `read`."""

    async def log(request: Request) -> Response:
        run, begin = _number(request, "run"), _number(request, "begin")
        part = await run_in_threadpool(log_part, context.settings, request.path_params["id"], run, begin)
        more = part.job.run_number > part.run_number
        body = {
            "run_number": part.run_number,
            "lines": part.lines,
            "end": part.end,
            "next_run": part.run_number + 1 if more else None,
            "is_over": part.job.is_over,
        }
        return JSONResponse(body, headers={"Cache-Control": "no-store"})

    async def log_file(request: Request) -> Response:
        run = request.path_params["run"]
        job, path = await run_in_threadpool(whole_log, context.settings, request.path_params["id"], run)
        return _download(path, f"{job.name}-run{run}.log")

    async def result(request: Request) -> Response:
        parts = request.path_params
        path, name = await run_in_threadpool(result_file, context.settings, parts["id"], parts["run"], parts["name"])
        return _download(path, name)

    return [
        Route("/jobs/{id}/log", log, methods=["GET"]),
        Route("/jobs/{id}/runs/{run:int}/log", log_file, methods=["GET"]),
        Route("/jobs/{id}/runs/{run:int}/results/{name:path}", result, methods=["GET"]),
    ]


def _download(path: object, name: str) -> FileResponse:
    """Send a file for download, never for display: a machine's output must not run as a page of ours."""
    headers = {"Content-Security-Policy": "sandbox; default-src 'none'", "Cache-Control": "no-store"}
    return FileResponse(
        str(path), media_type="application/octet-stream", filename=name, headers=headers,
        content_disposition_type="attachment",
    )  # fmt: skip


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise HttpProblem(422, f"{name}: expected a whole number")
    return int(text)
