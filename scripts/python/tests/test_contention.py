"""Contention while leaders are killed, judged by the history of the cluster and by `lockkeeper verify`."""

import asyncio
import threading
import time

from nodes import Nodes, await_true

from lockkeeper_client import AsyncClient, Client, Error, LockLost, NotAcquired, OutcomeUnknown, Unavailable

LOCKS = ("a", "b")
GRANTS_A_KILL = 30


class Witness:
    """What the programs saw: the holder of each lock, and the tokens of all grants."""

    def __init__(self) -> None:
        self.holders: dict[str, int] = {}
        self.newest: dict[str, int] = {}
        self.grants = 0
        self.faults: list[str] = []
        self._lock = threading.Lock()

    def enter(self, lock: str, token: int, cached: bool) -> None:
        """Records a use. It is a fault if another holder believes that it holds the lock, or the token is old.

        Uses of a cached hold have the same token.
        """
        with self._lock:
            if lock in self.holders:
                self.faults.append(f"{lock}: {token} while {self.holders[lock]} holds it")
            newest = self.newest.get(lock, 0)
            if token < newest or (token == newest and not cached):
                self.faults.append(f"{lock}: {token} after {self.newest[lock]}")
            self.holders[lock], self.newest[lock] = token, token
            self.grants += 1

    def leave(self, lock: str) -> None:
        """Records that the holder is about to release."""
        with self._lock:
            self.holders.pop(lock, None)


def _thread(lk: Client, witness: Witness, stop: threading.Event, lock: str, cached: bool) -> None:
    while not stop.is_set():
        try:
            with lk.lock(lock, wait=20, cached=cached) as hold:
                witness.enter(lock, hold.token, cached)
                hold.check()
                witness.leave(lock)
        except (NotAcquired, Unavailable, OutcomeUnknown):
            continue
        except (LockLost, Error) as error:
            witness.faults.append(f"{lock}: {error!r}")
            return


def _loop(nodes: Nodes, witness: Witness, stop: threading.Event) -> None:
    async def work(lk: AsyncClient, lock: str) -> None:
        while not stop.is_set():
            try:
                async with lk.lock(lock, wait=20, cached=True) as hold:
                    witness.enter(lock, hold.token, True)
                    hold.check()
                    await asyncio.sleep(0)
                    witness.leave(lock)
            except (NotAcquired, Unavailable, OutcomeUnknown):
                continue

    async def main() -> None:
        async with nodes.async_client() as lk:
            await asyncio.gather(*(work(lk, lock) for lock in LOCKS for _ in range(2)))

    asyncio.run(main())


def test_locks_have_one_holder_while_leaders_are_killed(own_nodes: Nodes) -> None:
    """Threads and tasks share locks, with cached holds and without, through kills of the leader.

    Each lock has one holder at a time, its tokens never decrease, and no hold is lost.
    """
    nodes, witness, stop = own_nodes, Witness(), threading.Event()
    clients = {cached: nodes.client() for cached in (False, True)}
    threads = [
        threading.Thread(target=_thread, args=(lk, witness, stop, lock, cached))
        for cached, lk in clients.items()
        for lock in LOCKS
    ]
    threads.append(threading.Thread(target=_loop, args=(nodes, witness, stop)))
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            before = witness.grants
            await_true(lambda before=before: witness.grants > before + GRANTS_A_KILL, "grants")  # type: ignore[misc]
            victim = nodes.leader()
            nodes.kill(victim)
            nodes.leader()
            nodes.start(victim)
        before = witness.grants
        await_true(lambda: witness.grants > before + GRANTS_A_KILL, "grants")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for lk in clients.values():
            lk.close()
    assert witness.faults == []
    with nodes.client() as lk:
        for lock in LOCKS:
            await_true(lambda lock=lock: not lk.call("locks", lock=lock)["holders"], "no holder")  # type: ignore[misc]
            exported = nodes.run("history", lock, "--json")
            assert exported.returncode == 0, exported.stderr
            export = nodes.folder / f"{lock}.jsonl"
            export.write_text(exported.stdout)
            verified = nodes.run("verify", str(export))
            assert verified.returncode == 0, verified.stdout + verified.stderr


def test_many_waiters_are_served_in_order(nodes: Nodes) -> None:
    """Waiters of several threads get the lock in the order in which they entered the queue."""
    with nodes.client() as lk:
        order: list[int] = []
        hold = lk.lock("contention-order").acquire()

        def wait(number: int) -> None:
            with lk.lock("contention-order", wait=60):
                order.append(number)

        threads = [threading.Thread(target=wait, args=(number,)) for number in range(8)]
        for number, thread in enumerate(threads):
            thread.start()
            await_true(
                lambda number=number: len(lk.call("locks", lock="contention-order")["waiters"]) == number + 1,  # type: ignore[misc]
                "the next waiter",
            )
        time.sleep(0)
        hold.release()
        for thread in threads:
            thread.join()
        assert order == list(range(8))
