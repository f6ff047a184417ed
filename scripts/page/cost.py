#!/usr/bin/env python3
"""Measures what the web page costs: a cluster of three nodes has 100,000 held locks, one of them with 10,000 waiters.

    scripts/page/cost.py             with target/release/lockkeeper
    LOCKKEEPER_BIN=FILE ...          with another binary
    ROUNDS=N PORT_BASE=PORT ...      with N rounds of 10 s [default: 7], on other ports [default: 29600]

It prints the time in which each screen is answered, the share of one processor that the idle leader uses with the
overview open in a browser and a scrape of the metrics each second, and without, and the pairs a second of
`bench --clients 64` with both against without, in turns. It fails if a screen takes more than 200 ms (the median of
10), or if the ratio of the medians is below 0.98. It needs Python 3, and a quiet machine.
"""

import http.client
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BINARY = pathlib.Path(os.environ.get("LOCKKEEPER_BIN", ROOT / "target/release/lockkeeper")).resolve()
BASE = int(os.environ.get("PORT_BASE", "29600"))
ROUNDS = int(os.environ.get("ROUNDS", "7"))
LOCKS, WAITERS = 100_000, 10_000
SCREEN_MS, RATIO = 200, 0.98
NODES = (1, 2, 3)
ENVIRONMENT = os.environ | {"LOCKKEEPER_ENDPOINTS": ",".join(f"127.0.0.1:{BASE + node}" for node in NODES)}


def start(folder):
    processes = []
    for node in NODES:
        lines = [f'cluster = "cost"\nnode = {node}\ndata = "{folder}/n{node}"\n[listen]']
        ports = (("client", 0), ("peer", 10), ("http", 20))
        lines += [f'{name} = "127.0.0.1:{BASE + offset + node}"' for name, offset in ports]
        for peer in NODES:
            lines.append(f'[[member]]\nid = {peer}\nclient = "127.0.0.1:{BASE + peer}"')
            lines.append(f'peer = "127.0.0.1:{BASE + 10 + peer}"')
        config = pathlib.Path(folder) / f"n{node}.toml"
        config.write_text("\n".join(lines) + "\n")
        log = open(f"{folder}/n{node}.log", "w")
        processes.append(subprocess.Popen([BINARY, "serve", "--config", config], stdout=log, stderr=log))
    return processes


def connection(node=1):
    return http.client.HTTPConnection("127.0.0.1", BASE + 20 + node, timeout=60)


def get(open_connection, path):
    open_connection.request("GET", path)
    answer = open_connection.getresponse()
    return answer.status, answer.read()


def post(open_connection, call, body):
    kind = {"content-type": "application/json"}
    open_connection.request("POST", f"/v1/ns/default/{call}", json.dumps(body), kind)
    answer = open_connection.getresponse()
    text = answer.read()
    if answer.status not in (200, 201, 202):
        sys.exit(f"{call}: {answer.status} {text}")
    return json.loads(text)


def until_ready():
    for _ in range(300):
        try:
            if get(connection(), "/readyz")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit("the cluster is not ready")


def leader():
    until_ready()
    status = json.loads(get(connection(), "/v1/status")[1])
    return int(status["leader"])


def fill(node):
    """Takes the locks with leases, then the waiters of the first one, over 32 connections."""
    def work(bodies):
        own = connection(node)
        for body in bodies:
            post(own, "acquire", body)

    def all_of(bodies):
        threads = [threading.Thread(target=work, args=(bodies[part::32],)) for part in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    subprocess.run([BINARY, "settings", "ttl_max", "2h"], env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=True)
    lease = {"lease_ms": 3_600_000, "host": "app1", "why": "a job of the night"}
    all_of([{**lease, "lock": f"job/{number:06}", "who": f"worker-{number}"} for number in range(LOCKS)])
    wait = {**lease, "lock": "job/000000", "wait_ms": 3_600_000, "poll_ms": 1}
    name = "00000000-0000-4000-8000-{:012}".format
    waits = ({"who": f"waiter-{number}", "handle": f"h{number}", "request": name(number)} for number in range(WAITERS))
    all_of([{**wait, **own} for own in waits])
    status = json.loads(get(connection(node), "/v1/status")[1])
    if status["locks"] < LOCKS or status["waiters"] < WAITERS:
        sys.exit(f"not filled: {status['locks']} locks, {status['waiters']} waiters")


def screens(node):
    """Returns the median and the longest time of each screen, in milliseconds."""
    own = connection(node)
    session = post(own, "sessions", {"handle": "s", "ttl_ms": 600_000})["session"]
    post(own, "acquire", {"lock": "zone", "session": session, "handle": "s", "request": "1"})
    paths = ["/", "/locks", "/locks?show=waiting", "/locks?show=overdue", "/locks?older_than_ms=86400000",
             "/lock?lock=job%2F000000", "/lock?lock=job%2F000001", "/sessions", f"/session?id={session}", "/nodes"]
    measured = {}
    for path in paths:
        times = []
        for _ in range(10):
            # A screen is read again once a second.
            time.sleep(1)
            begun = time.monotonic()
            status, _ = get(own, path)
            times.append((time.monotonic() - begun) * 1e3)
            if status != 200:
                sys.exit(f"{path}: {status}")
        measured[path.split(f"={session}")[0]] = (statistics.median(times), max(times))
    return measured


class Browser(threading.Thread):
    """Shows the overview as a browser does: it is read after each notification, and the metrics each second."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.node, self.ends, self.read = node, threading.Event(), 0

    def run(self):
        scraping = threading.Thread(target=self.scrape, daemon=True)
        scraping.start()
        live, own = connection(self.node), connection(self.node)
        live.request("GET", "/page/live")
        events = live.getresponse()
        while not self.ends.is_set():
            if events.readline().startswith(b"data:"):
                status, _ = get(own, "/")
                assert status == 200, status
                self.read += 1
        live.close()
        scraping.join()

    def scrape(self):
        own = connection(self.node)
        while not self.ends.wait(1):
            get(own, "/metrics")


def processor_share(process, browser):
    """Returns the share of one processor that a node uses for 20 s without calls, with a browser or without."""
    def used():
        fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    if browser:
        browser.start()
        time.sleep(2)
    before, begun = used(), time.monotonic()
    time.sleep(20)
    share = (used() - before) / (time.monotonic() - begun)
    if browser:
        browser.ends.set()
        browser.join()
    return share


def pairs():
    command = [BINARY, "bench", "--clients", "64", "--secs", "10", "--json"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])["pairs_per_second"]


def main():
    with tempfile.TemporaryDirectory() as folder:
        processes = start(folder)
        try:
            node = leader()
            begun = time.monotonic()
            fill(node)
            took = time.monotonic() - begun
            print(f"{LOCKS:,} locks, {WAITERS:,} waiters after {took:.0f} s; node {node} leads and answers", flush=True)
            slow = []
            for path, (median, longest) in screens(node).items():
                print(f"{median:7.1f} ms, longest {longest:7.1f} ms  {path}")
                slow += [path] if SCREEN_MS < median else []
            shares = [processor_share(processes[node - 1], shown) for shown in (None, Browser(node))]
            print("of one processor, the idle leader uses {:.1%}, and {:.1%} with the overview open".format(*shares))
            without, shown = [], []
            for turn in itertools.islice(itertools.cycle((without, shown)), 2 * ROUNDS):
                browser = Browser(node)
                if turn is shown:
                    browser.start()
                turn.append(pairs())
                browser.ends.set()
                note = f", the overview was read {browser.read} times" if turn is shown else ""
                print(f"{'open' if turn is shown else 'none':5} {turn[-1]:7,} pairs/s{note}", flush=True)
            ratio = statistics.median(shown) / statistics.median(without)
            print(f"ratio {ratio:.3f} of {statistics.median(without):,.0f} pairs/s")
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()
    if slow or ratio < RATIO:
        sys.exit(f"missed: {', '.join(slow) or f'the ratio is below {RATIO}'}")


main()
