"""HTTP/1.1: makes requests, and parses answers strictly."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

HEAD_BYTES_MAX = 32 * 1024
BODY_BYTES_MAX = 16 * 1024 * 1024
"""The most bytes of a body that the parser keeps before they are taken."""
CHUNK_LINE_BYTES_MAX = 256

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\r\n\0]*)?")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")


class Malformed(Exception):
    """The bytes are no answer of HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of an answer. Names of headers are lower-case, and repeated ones are joined by commas."""

    status: int
    headers: dict[str, str]


def request(method: str, target: str, host: str, headers: Iterable[tuple[str, str]], body: bytes | None) -> bytes:
    """Returns the bytes of a request. Raises ValueError if a header or the target would add a line."""
    lines = [f"{method} {target} HTTP/1.1", f"host: {host}", *(f"{name}: {value}" for name, value in headers)]
    if body is not None:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    if any(ord(char) < 0x20 or ord(char) == 0x7F for line in lines for char in line):
        raise ValueError("a header contains a control character")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


class AnswerParser:
    """Parses one answer. Feed it with bytes until `finished`; `take` returns the bytes of the body so far."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.finished = False
        self.reusable = False
        """Whether the connection can send another request, once the answer is finished."""
        self._buffer = bytearray()
        self._body = bytearray()
        self._left = 0
        self._until_end = False
        self._step = self._read_head

    def feed(self, data: bytes) -> None:
        """Parses more bytes. Raises Malformed if they cannot be an answer."""
        self._buffer += data
        while not self.finished and self._step():
            pass
        if self.finished and self._buffer:
            raise Malformed("bytes after the end of the answer")
        if BODY_BYTES_MAX < len(self._body):
            raise Malformed(f"a body of more than {BODY_BYTES_MAX} bytes")

    def eof(self) -> None:
        """Handles the end of the connection. Raises Malformed if the answer is not complete."""
        if not self._until_end and not self.finished:
            raise Malformed("the connection ended within the answer")
        self.finished, self.reusable = True, False

    def take(self) -> bytes:
        """Returns the bytes of the body that arrived since the last call."""
        taken = bytes(self._body)
        self._body.clear()
        return taken

    def _line(self, longest: int) -> bytes | None:
        end = self._buffer.find(b"\r\n", 0, longest + 2)
        if end < 0:
            if longest < len(self._buffer):
                raise Malformed(f"a line of more than {longest} bytes")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
        if end < 0:
            if HEAD_BYTES_MAX <= len(self._buffer):
                raise Malformed(f"a head of more than {HEAD_BYTES_MAX} bytes")
            return False
        first, *fields = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        status_line = _STATUS_LINE.fullmatch(first)
        if status_line is None:
            raise Malformed("no status line")
        status, headers = int(status_line[2]), _fields(fields)
        if status < 200:
            if status == 101:
                raise Malformed("a change of the protocol")
            return True
        self.head = Head(status, headers)
        self.reusable = status_line[1] == b"1" and "close" not in headers.get("connection", "").lower()
        self._choose_body(status, headers)
        return True

    def _choose_body(self, status: int, headers: dict[str, str]) -> None:
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise Malformed("an unsupported or ambiguous length of the body")
            self._step = self._read_chunk_size
        elif length is not None:
            if not (length.isascii() and length.isdigit()) or BODY_BYTES_MAX < int(length[:12]) or 12 < len(length):
                raise Malformed("an impossible length of the body")
            self._left, self._step = int(length), self._read_sized
        elif status in (204, 304):
            self.finished = True
        else:
            self._until_end, self._step = True, self._read_to_end

    def _move(self) -> None:
        part = min(self._left, len(self._buffer))
        self._body += self._buffer[:part]
        del self._buffer[:part]
        self._left -= part

    def _read_sized(self) -> bool:
        self._move()
        self.finished = self._left == 0
        return False

    def _read_to_end(self) -> bool:
        self._left = len(self._buffer)
        self._move()
        return False

    def _read_chunk_size(self) -> bool:
        line = self._line(CHUNK_LINE_BYTES_MAX)
        if line is None:
            return False
        size = _CHUNK.fullmatch(line)
        if size is None:
            raise Malformed("no size of a chunk")
        self._left = int(size[1], 16)
        self._step = self._read_chunk if self._left else self._read_trailer
        return True

    def _read_chunk(self) -> bool:
        self._move()
        if self._left or len(self._buffer) < 2:
            return False
        if not self._buffer.startswith(b"\r\n"):
            raise Malformed("no end of a chunk")
        del self._buffer[:2]
        self._step = self._read_chunk_size
        return True

    def _read_trailer(self) -> bool:
        line = self._line(HEAD_BYTES_MAX)
        if line is None:
            return False
        if line:
            _fields([line])
        self.finished = not line
        return True


def _fields(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise Malformed("a malformed header")
        name, value = field[1].decode("ascii").lower(), field[2].decode("latin-1")
        if name in headers and name in ("content-length", "transfer-encoding"):
            raise Malformed(f"several headers {name}")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


class EventReader:
    """Splits a `text/event-stream` into events, each a pair of its name and its data. Ignores comments."""

    def __init__(self, longest: int = 1024 * 1024) -> None:
        self._longest = longest
        self._buffer = b""
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        """Returns the events that are complete. Raises Malformed if one is too long or no text."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if self._longest < len(self._buffer) + sum(map(len, self._data)):
            raise Malformed(f"an event of more than {self._longest} bytes")
        try:
            return [event for line in lines if (event := self._line(line.decode().rstrip("\r")))]
        except UnicodeDecodeError as error:
            raise Malformed("an event that is no text") from error

    def _line(self, line: str) -> tuple[str, str] | None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif not line and self._data:
            event = (self._name, "\n".join(self._data))
            self._name, self._data = "", []
            return event
        return None
