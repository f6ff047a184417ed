"""Makes the calls of the HTTP interface, one attempt at a time."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, urlencode

from .clock import MILLISECOND, SECOND, Clock
from .endpoints import Endpoint, Endpoints
from .errors import Error, Internal, InvalidArgument, OutcomeUnknown, Unauthenticated, Unavailable, error_of
from .http import Head, request
from .retry import UNANSWERED, Retry
from .steps import Exchange, Listen, Next, NotAnswered, NotSent, Steps, Stop, exchange, listen, never, next_part
from .token import Token
from .validity import Proof

JSON_PROBLEM = "application/problem+json"
Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer. `sent` is when its request was about to be sent, in ns of the clock."""

    sent: int
    head: Head
    body: dict[str, Any]

    @property
    def index(self) -> int:
        """Position in the log on which the answer depends; 0 if there is none."""
        return self._header("lockkeeper-index") or 0

    @property
    def log_time_ms(self) -> int | None:
        """Log time at which the answer was true."""
        return self._header("lockkeeper-log-time")

    def _header(self, name: str) -> int | None:
        """Returns the number in a header, if there is one. Raises Internal if it is none."""
        text = self.head.headers.get(name)
        try:
            return int(text) if text else None
        except ValueError as error:
            raise Internal(f"an answer has no number {name}") from error

    def number(self, name: str) -> int:
        """Returns a number, which may be a text of digits. Raises Internal if it is missing."""
        try:
            return int(self.body[name])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise Internal(f"an answer has no number {name}") from error

    def text(self, name: str) -> str:
        """Returns a text. Raises Internal if it is missing."""
        text = self.body.get(name)
        if not isinstance(text, str):
            raise Internal(f"an answer has no text {name}")
        return text

    @property
    def ends(self) -> bool:
        """Whether the subject of the answer has an end of its own."""
        return self.body.get("deadline_ms") is not None

    @property
    def proof(self) -> Proof:
        """Until when the subject of the answer lasts."""
        return Proof(self.sent, self.index, self.number("log_time_ms"), self.number("deadline_ms"))


class Link:
    """What the calls of one client share: addresses, namespace, identity, and the cluster that answered first."""

    def __init__(
        self, endpoints: Endpoints, namespace: str, token: Token | None, clock: Clock, request_timeout: int
    ) -> None:
        if not namespace or len(namespace) > 64 or set(namespace) - set("abcdefghijklmnopqrstuvwxyz0123456789-_."):
            raise InvalidArgument(f"namespace: 1 to 64 of a-z, 0-9, '-', '_' and '.', got {namespace!r}")
        self.endpoints = endpoints
        self.namespace = namespace
        self.clock = clock
        self.request_timeout = request_timeout
        self.cluster: str | None = None
        self.foreign = False
        """Whether the last answer came from another cluster."""
        self.spawn: Callable[[Steps[Any]], object] = drop
        """Runs an operation in the background. The driver sets it."""
        self._token = token
        self.passing: tuple[type[Error], ...] = UNANSWERED
        """Errors after which a release is repeated. A node that has not read its rules again refuses a new token."""
        if token is not None and token.in_file:
            self.passing = (*UNANSWERED, Unauthenticated)
        self._leaving: tuple[type[Error], ...] = (*self.passing, Unauthenticated, Internal)
        """Errors after which another node is asked next: it may have newer rules, or no such fault."""

    @property
    def attempt_timeout(self) -> int:
        """Time after which a silent node is left, in ns, so that another one can answer in time."""
        return self.request_timeout // 2

    def retry(
        self, stop: Stop = never, repeated: tuple[type[Error], ...] = UNANSWERED, patience: int | None = None
    ) -> Retry:
        """Returns a retry, by default with the patience of this client."""
        patient = self.request_timeout if patience is None else patience
        # Within a short patience, too, another node is asked after a silent one.
        return Retry(self.clock, patient, min(self.attempt_timeout, patient // 2), stop, repeated)

    def call(self, path: str, fields: Fields, timeout: int, stop: Stop = never) -> Steps[Answer]:
        """Makes one attempt of a call in the namespace, within `timeout` ns. Raises the error of its answer."""
        body = json.dumps(fields).encode()
        return self._attempt("POST", f"/v1/ns/{self.namespace}/{path}", body, timeout, stop)

    def get(self, path: str, fields: Fields, timeout: int) -> Steps[Answer]:
        """Makes one attempt of a read. A path that begins with a slash is not in the namespace."""
        return self._attempt("GET", self._target(path, fields), None, timeout, never)

    def follow(self, path: str, fields: Fields, timeout: int, stop: Stop) -> Steps[Endpoint]:
        """Begins to read a stream of events within `timeout` ns. Raises the error of its answer."""
        endpoint = self.endpoints.current
        data = self._request(endpoint, "GET", self._target(path, fields), None, "text/event-stream")
        head = yield from self._guarded(endpoint, listen(Listen(endpoint, data, timeout, stop)))
        self._check_cluster(endpoint, head)
        if head.headers.get("content-type") == JSON_PROBLEM:
            error: Error = yield from self._guarded(endpoint, _problem(stop, timeout))
            if isinstance(error, self._leaving):
                self.endpoints.failed(endpoint)
            raise error
        if head.status != 200 or not head.headers.get("content-type", "").startswith("text/event-stream"):
            raise Unavailable(f"{endpoint} has no stream {path}: status {head.status}", {"status": head.status})
        return endpoint

    def _target(self, path: str, fields: Fields) -> str:
        base = path if path.startswith("/") else f"/v1/ns/{self.namespace}/{path}"
        given = {name: _text(value) for name, value in fields.items() if value is not None}
        return f"{base}?{urlencode(given, quote_via=quote)}" if given else base

    def _request(self, endpoint: Endpoint, method: str, target: str, body: bytes | None, accept: str) -> bytes:
        headers = [("accept", accept)]
        if self._token is not None:
            headers.append(("authorization", f"Bearer {self._token.show()}"))
        return request(method, target, endpoint.authority, headers, body)

    def _attempt(self, method: str, target: str, body: bytes | None, timeout: int, stop: Stop) -> Steps[Answer]:
        endpoint, sent = self.endpoints.current, self.clock()
        data = self._request(endpoint, method, target, body, "application/json")
        head, content = yield from self._guarded(endpoint, exchange(Exchange(endpoint, data, timeout, stop)))
        self._check_cluster(endpoint, head)
        try:
            return self._read(endpoint, sent, head, content)
        except self._leaving:
            self.endpoints.failed(endpoint)
            raise

    def leaving(self, attempt: Steps[Answer], repeated: tuple[type[Error], ...]) -> Steps[Answer]:
        """Makes an attempt that its caller repeats after these errors, at another node: it may have other rules."""
        endpoint = self.endpoints.current
        try:
            return (yield from attempt)
        except repeated:
            self.endpoints.failed(endpoint)
            raise

    def _guarded(self, endpoint: Endpoint, steps: Steps[Any]) -> Steps[Any]:
        """Turns errors of the network into those of the service, and asks another node next."""
        try:
            return (yield from steps)
        except NotSent as error:
            self.endpoints.failed(endpoint)
            raise Unavailable(f"{endpoint} cannot be reached: {error}") from error
        except NotAnswered as error:
            self.endpoints.failed(endpoint)
            raise OutcomeUnknown(f"{endpoint} did not answer: {error}") from error

    def _check_cluster(self, endpoint: Endpoint, head: Head) -> None:
        """Believes only the cluster of the first answer: a restored cluster is another one."""
        cluster = head.headers.get("lockkeeper-cluster")
        if cluster is None:
            return
        if self.cluster is None:
            self.cluster = cluster
        self.foreign = cluster != self.cluster
        if self.foreign:
            self.endpoints.failed(endpoint)
            raise Unavailable(
                f"{endpoint} belongs to cluster {cluster}, and this client uses {self.cluster}: "
                "if the cluster was restored, create another client"
            )

    def _read(self, endpoint: Endpoint, sent: int, head: Head, content: bytes) -> Answer:
        kind = head.headers.get("content-type", "").split(";")[0]
        if head.status >= 400 and kind != JSON_PROBLEM:
            raise _foreign_error(endpoint, head, content)
        body = json_object(content)
        if body is None:
            raise OutcomeUnknown(f"{endpoint} answered with status {head.status} and no JSON object")
        if head.status >= 400:
            raise error_of(body)
        if head.status >= 300:
            raise Internal(f"{endpoint} answered with status {head.status}")
        return Answer(sent, head, body)


def _text(value: object) -> str:
    """Returns a value as text in a query: booleans are written as in JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _problem(stop: Stop, timeout: int) -> Steps[Error]:
    """Reads the error with which a node answers instead of a stream."""
    content = b""
    while part := (yield from next_part(Next(timeout, stop))):
        content += part
    body = json_object(content)
    return OutcomeUnknown("a node answered with an error that is no JSON object") if body is None else error_of(body)


def _foreign_error(endpoint: Endpoint, head: Head, content: bytes) -> Error:
    """Returns the error of an answer that is not a problem object: of a proxy, or of the guard of the port."""
    text = content[:200].decode("utf-8", "replace").strip()
    detail = f"{endpoint} answered with status {head.status}: {text}"
    if head.status == 429:
        return Unavailable(detail)
    return OutcomeUnknown(detail) if head.status >= 500 else InvalidArgument(detail)


def drop(steps: Steps[Any]) -> None:
    """Does not run an operation, because there is no driver."""
    steps.close()


def json_object(data: str | bytes) -> dict[str, Any] | None:
    """Reads a JSON object; returns None if the data is something else."""
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def given(**fields: Any) -> dict[str, Any]:
    """Leaves out the fields that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def milliseconds(duration: int) -> int:
    """Converts ns to ms, rounded up."""
    return -(-duration // MILLISECOND)


def nanoseconds(seconds: float) -> int:
    """Converts seconds to ns."""
    return int(seconds * SECOND)
