"""Watches and reads at a real cluster."""

import asyncio
import threading
from typing import Any

import pytest
from nodes import PATIENCE, Nodes, await_true

from lockkeeper_client import AsyncWatch, Client, EventsMissed, InvalidArgument, Watch
from lockkeeper_client._threads import Threads
from lockkeeper_client.core.reads import Pages, Row


def _until(watch: Watch, event: str, lock: str) -> dict[str, Any]:
    """Returns the next event of this kind and lock."""
    return next(found for found in watch if (found["event"], found["lock"]) == (event, lock))


def test_a_watch_has_each_event_once_and_in_order(nodes: Nodes) -> None:
    """A watch begins when it is made, has only the names of its prefix, and continues after each of its positions."""
    with nodes.client() as lk, nodes.client() as other:
        with lk.watch("watch-a") as watch:
            before = watch.position
            tokens: list[int] = []
            for name in ("watch-a1", "watch-b", "watch-a2", "watch-a1"):
                with other.lock(name) as hold:
                    tokens.append(hold.token)
            granted = [_until(watch, "granted", name) for name in ("watch-a1", "watch-a2", "watch-a1")]
        assert [int(event["token"]) for event in granted] == [tokens[0], tokens[2], tokens[3]]
        assert all(found["lock"] in ("watch-a1", "watch-a2", None) for found in _after(lk, before, 6))
        first = granted[0]
        with lk.watch("watch-a", after=f"{first['position']}@{first['cluster_id']}") as later:
            assert _until(later, "granted", "watch-a2") == granted[1]
        assert list(watch) == []


def _after(lk: Client, position: str, count: int) -> list[dict[str, Any]]:
    with lk.watch("watch-a", after=position) as watch:
        return [next(watch) for _ in range(count)]


def test_a_watch_continues_at_another_node(own_nodes: Nodes) -> None:
    """While each node in turn is killed, a watch misses no grant and repeats none."""
    nodes = own_nodes
    tokens: list[int] = []
    with nodes.client() as lk, nodes.client() as other, lk.watch("w") as watch:
        for victim in (1, 2, 3):
            with other.lock("w") as hold:
                tokens.append(hold.token)
            assert int(_until(watch, "granted", "w")["token"]) == tokens[-1]
            nodes.kill(victim)
            for _ in range(3):
                with other.lock("w") as hold:
                    tokens.append(hold.token)
            seen = [int(_until(watch, "granted", "w")["token"]) for _ in range(3)]
            assert seen == tokens[-3:]
            nodes.start(victim)
            nodes.leader()


def test_missed_events_are_reported_once(own_nodes: Nodes) -> None:
    """A watch from before the start of its node raises, with the position from which it then continues."""
    nodes = own_nodes
    with nodes.client() as lk:
        lk.lock("m").acquire().release()
    nodes.stop(1)
    nodes.start(1)
    with Client(nodes.http[0], request_timeout=PATIENCE) as lk, lk.watch(after="0.0") as watch:
        with pytest.raises(EventsMissed) as missed:
            next(watch)
        assert missed.value.resume is not None and watch.position == missed.value.resume
        with lk.lock("m") as hold:
            assert int(_until(watch, "granted", "m")["token"]) == hold.token
        with lk.watch(after=f"{watch.position.split('@')[0]}@00000000") as foreign, pytest.raises(EventsMissed):
            next(foreign)
        with lk.watch(after="x") as unfit, pytest.raises(InvalidArgument):
            next(unfit)


def test_another_thread_ends_a_watch(nodes: Nodes) -> None:
    """A watch that waits for an event ends when another thread closes it, or the client."""
    with nodes.client() as lk:
        watches = [lk.watch("watch-none"), lk.watch("watch-none")]
        events: list[Row] = []
        threads = [threading.Thread(target=events.extend, args=(watch,)) for watch in watches]
        for thread in threads:
            thread.start()
        watches[0].close()
        threads[0].join(10)
        assert not threads[0].is_alive() and threads[1].is_alive()
    threads[1].join(10)
    assert not threads[1].is_alive()
    assert all(event["lock"] is None for event in events)


def test_a_watch_of_asyncio(nodes: Nodes) -> None:
    """A watch for asyncio has the same events. A cancelled wait for an event loses none."""

    async def main() -> None:
        async with nodes.async_client() as lk, await lk.watch("watch-aio") as watch:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await _granted(watch)
            async with lk.lock("watch-aio") as hold:
                async with asyncio.timeout(PATIENCE):
                    assert await _granted(watch) == hold.token
            watch.close()
            assert [event async for event in watch] == []

    async def _granted(watch: AsyncWatch) -> int:
        async for event in watch:
            if event["event"] == "granted":
                return int(event["token"])
        raise AssertionError("the watch has ended")

    asyncio.run(main())


def _all(threads: Threads, pages: Pages) -> list[Row]:
    rows: list[Row] = []
    while (page := threads.run(pages.next())) is not None:
        rows += page
    return rows


def test_reads_page_through_all_rows(nodes: Nodes) -> None:
    """Locks are listed by name and filtered, and the history continues from page to page."""
    with nodes.client() as lk, nodes.client() as other:
        names = [f"reads-{number}" for number in range(5)]
        with lk.lock(*names, why="a test"):
            assert [row["lock"] for row in lk.locks("reads-")] == names
            assert [row["lock"] for row in lk.locks("reads-", show="waiting")] == []
            assert [row["lock"] for row in lk.locks("reads-", show="overdue")] == []
            assert [row["lock"] for row in lk.locks("reads-", older_than=3_600)] == []
            shown = lk.show("reads-0")
            assert shown["holders"][0]["why"] == "a test"
            lk.ask("reads-0", int(shown["holders"][0]["token"]), "please finish")
            waiter = threading.Thread(target=lambda: other.lock("reads-0", wait=60).acquire().release())
            waiter.start()
            await_true(lambda: list(lk.locks("reads-", show="waiting")), "a waiter")
            assert lk.explain("reads-0")["chain"]
        waiter.join()
        for _ in range(4):
            lk.lock("reads-0").acquire().release()
        records = list(lk.history("reads-0"))
        tokens = [int(record["token"]) for record in records if record["event"] == "granted"]
        assert len(tokens) == 6 and tokens == sorted(tokens)
        link, threads = lk._settings.link, lk._threads  # pyright: ignore[reportPrivateUsage]
        small = Pages(link, "history", "records", {"lock": "reads-0", "rows": 2})
        assert _all(threads, small) == records, "pages of two rows have the same rows"
        small = Pages(link, "locks", "locks", {"prefix": "reads-", "rows": 2})
        assert _all(threads, small) == list(lk.locks("reads-"))

    async def main() -> None:
        async with nodes.async_client() as lk:
            assert [row async for row in lk.history("reads-0")] == records
            assert (await lk.show("reads-0"))["holders"] == []
            assert (await lk.explain("reads-0"))["lock"] == "reads-0"
            assert [row["lock"] async for row in lk.locks("reads-none")] == []

    asyncio.run(main())
