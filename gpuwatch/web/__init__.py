"""The web page and the HTTP API: a thin client of `app/`. Async code lives here and nowhere else."""
