"""Reads of what the cluster holds, and of what has happened."""

from typing import Any, Literal, TypeAlias, cast

from .errors import Internal
from .link import Answer, Fields, Link, given
from .steps import Steps

Row: TypeAlias = dict[str, Any]
"""A JSON object, as the command of the same name prints it with `--json`."""
Show: TypeAlias = Literal["all", "held", "waiting", "overdue"]


class Pages:
    """The rows of a read, one page after another."""

    def __init__(self, link: Link, path: str, rows: str, fields: Fields) -> None:
        self._link = link
        self._path = path
        self._rows = rows
        self._fields: Fields | None = fields

    def next(self) -> Steps[list[Row] | None]:
        """Returns the rows of the next page, which may be none; None at the end."""
        if (fields := self._fields) is None:
            return None
        answer = yield from self._link.retry().until_answered(
            lambda timeout: self._link.get(self._path, fields, timeout)
        )
        rows: object = answer.body.get(self._rows)
        if not isinstance(rows, list):
            raise Internal(f"an answer has no list {self._rows}")
        page = cast(list[Row], rows)
        more = _after(answer, page)
        self._fields = None if more is None else {**fields, **more}
        return page


def _after(answer: Answer, page: list[Row]) -> Fields | None:
    """Returns the fields of the next page; None if there is none."""
    if answer.body.get("more"):
        return {"after": page[-1]["lock"]}
    return {"from": position} if (position := answer.body.get("next")) is not None else None


def locks(link: Link, prefix: str, show: Show, older_than_ms: int | None) -> Pages:
    """Lists the locks in use, in the order of their names."""
    return Pages(link, "locks", "locks", given(prefix=prefix, show=show, older_than_ms=older_than_ms))


def history(link: Link, lock: str | None, after: str | None) -> Pages:
    """Lists what happened to the holders of a lock, or of all locks, from the past to now."""
    return Pages(link, "history", "records", {"lock": lock, "from": after})
