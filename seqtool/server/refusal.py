"""`Refusal`: a request that gets no answer but a line that says why."""

from __future__ import annotations

from seqtool.core.errors import SeqtoolError


class Refusal(Exception):
    """What is told a client instead of an answer.

    Args:
        status: of HTTP, 400 to 499 where the client can mend it.
        message: one line, what happened and the next step.
        closes: the connection, as what comes next on it may be no request.
    """

    def __init__(self, status: int, message: str, *, closes: bool = False) -> None:
        super().__init__(message)
        self.status, self.message, self.closes = status, " ".join(message.split()), closes


def refusal_of(error: SeqtoolError) -> Refusal:
    """Return the refusal of a text that cannot be used."""
    hint = f"; {error.hint}" if error.hint else ""
    return Refusal(400, f"{error}{hint}")
