"""HTTP/1.1 without a network: torn and hostile answers, and requests."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockkeeper_client.core.http import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    AnswerParser,
    EventReader,
    Malformed,
    request,
)

SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: a\r\nx: b\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\n\r\n2;ext=1\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: x\r\n\r\n"
)
TO_END = b"HTTP/1.0 502 Bad Gateway\r\n\r\nhello"


def _parts(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


@given(st.sampled_from([SIZED, CHUNKED, TO_END]), st.lists(st.integers(min_value=0, max_value=1_000)))
def test_an_answer_is_the_same_in_any_parts(data: bytes, cuts: list[int]) -> None:
    """However the network cuts an answer, it parses to the same head and body."""
    parser, body = AnswerParser(), b""
    for part in _parts(b"HTTP/1.1 100 Continue\r\n\r\n" + data, cuts):
        parser.feed(part)
        body += parser.take()
    if data is TO_END:
        assert not parser.finished
        parser.eof()
    assert parser.finished and body == b"hello" and parser.head is not None
    assert parser.reusable == (data is not TO_END)
    if data is SIZED:
        assert parser.head.headers["x"] == "a, b"


@given(st.sampled_from([SIZED, CHUNKED]), st.integers(min_value=0))
def test_a_torn_answer_is_no_answer(data: bytes, cut: int) -> None:
    """An answer that lacks its last bytes is never taken as complete."""
    parser = AnswerParser()
    parser.feed(data[: cut % len(data)])
    assert not parser.finished
    with pytest.raises(Malformed):
        parser.eof()


@given(st.binary(max_size=300), st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", SIZED[:-5], CHUNKED[:60]]))
def test_hostile_bytes_raise_malformed_and_nothing_else(data: bytes, begin: bytes) -> None:
    """Any bytes are parsed, need more bytes, or raise Malformed."""
    parser = AnswerParser()
    try:
        parser.feed(begin + data)
        parser.eof()
    except Malformed:
        return
    assert parser.head is not None


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1),
        b"HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 999 No\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naXX",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * HEAD_BYTES_MAX,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 400,
        b"a" * HEAD_BYTES_MAX,
    ],
)
def test_an_ambiguous_answer_is_refused(head: bytes) -> None:
    """Answers that two parsers could read differently, or that have no bound, are refused."""
    with pytest.raises(Malformed):
        AnswerParser().feed(head)


def test_a_body_without_an_end_is_bounded() -> None:
    """A node cannot fill the memory of a client."""
    parser = AnswerParser()
    parser.feed(b"HTTP/1.0 200 OK\r\n\r\n")
    with pytest.raises(Malformed):
        for _ in range(40):
            parser.feed(b"x" * (BODY_BYTES_MAX // 32))


def test_a_request_has_no_foreign_lines() -> None:
    """A value cannot add a header or a request."""
    assert request("GET", "/a", "h:1", [("accept", "x")], None) == b"GET /a HTTP/1.1\r\nhost: h:1\r\naccept: x\r\n\r\n"
    for target, value in (("/a\r\nx: y", "x"), ("/a", "x\r\ny: z"), ("/a", "\0")):
        with pytest.raises(ValueError):
            request("GET", target, "h", [("authorization", value)], b"{}")


@given(st.lists(st.integers(min_value=0, max_value=1_000)))
def test_events_are_the_same_in_any_parts(cuts: list[int]) -> None:
    """However the network cuts a stream, it has the same events, without its comments."""
    data = b': a\n\nevent: asked\ndata: {"by":\ndata: "\xc3\xa9"}\nid: 7\n\n: b\n\r\nevent:ended\r\ndata:{}\r\n\r\n'
    reader = EventReader()
    events = [event for part in _parts(data, cuts) for event in reader.feed(part)]
    assert events == [("asked", '{"by":\n"é"}'), ("ended", "{}")]


@given(st.binary(max_size=200))
def test_hostile_events_raise_malformed_and_nothing_else(data: bytes) -> None:
    """Any bytes of a stream are events, are ignored, or raise Malformed."""
    reader = EventReader(longest=100)
    try:
        reader.feed(data + b"\n\n")
    except Malformed:
        return
