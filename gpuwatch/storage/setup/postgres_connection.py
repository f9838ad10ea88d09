"""A connection to PostgreSQL that never waits forever for an answer.

A firewall that forgets a connection, or a network that drops packets, reports no error: a query would wait until the
kernel gives up, which never happens behind a proxy that still acknowledges. Server-side timeouts do not help here.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.pq import TransactionStatus


class BoundedConnection(psycopg.Connection[Any]):
    """Closes itself if an answer takes too long; the pool then opens a new one."""

    statement_timeout_s = 0.0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Call `psycopg.Connection.wait`, always with a limit. Raises psycopg.OperationalError."""
        limit_s = self.statement_timeout_s if timeout is None else timeout
        try:
            return super().wait(gen, interval, limit_s)
        except psycopg.OperationalError as error:
            if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise  # the server's own answer
            self.pgconn.finish()  # in the middle of a query it cannot be used any more
            raise psycopg.OperationalError(f"no answer within {limit_s:.0f} s") from error


def connect_bounded(statement_timeout_s: float, *args: Any, **parameters: Any) -> BoundedConnection:
    """Connect like `psycopg.connect`."""
    connection = BoundedConnection.connect(*args, **parameters)
    connection.statement_timeout_s = statement_timeout_s
    return connection
