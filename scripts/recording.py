#!/usr/bin/env python3
"""Runs the real program and draws what it prints as src/manual/recording.svg: a lock is held, the leader is killed, and
the lock is still held under the same token.

    scripts/recording.py             with target/release/lockkeeper
    LOCKKEEPER_BIN=FILE ...          with another binary

It needs Python 3 and nothing else. The nodes listen on ports 27701 to 27723 of loopback; the drawing shows the usual
ones.
"""

import html
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = pathlib.Path(os.environ.get("LOCKKEEPER_BIN", ROOT / "target/release/lockkeeper")).resolve()
LINE, LEFT, TOP, WIDTH = 17, 14, 40, 800
PAUSE, TYPING = 0.8, 0.02  # seconds between two commands, and for each character that is typed


def stage(folder):
    """A copy of cluster/ with other ports, so that a cluster that runs already is left alone."""
    shutil.copytree(ROOT / "cluster", folder / "cluster", ignore=shutil.ignore_patterns("data"))
    for config in folder.glob("cluster/n*/lockkeeper.toml"):
        config.write_text(re.sub(r"\b76([012]\d)\b", r"277\1", config.read_text()))
    (folder / "bin").mkdir()
    (folder / "bin/lockkeeper").symlink_to(BINARY)
    endpoints = ",".join(f"127.0.0.1:2770{node}" for node in (1, 2, 3))
    paths = f"{folder}/bin:{os.environ['PATH']}"
    return os.environ | {"PATH": paths, "LOCKKEEPER_BIN": str(BINARY), "LOCKKEEPER_ENDPOINTS": endpoints, "USER": "ada"}


def record(folder, environment):
    """Runs the commands, and returns what is seen: (seconds, text, whether it is typed)."""
    seen, now = [], 0.5

    def run(command, shown=None):
        nonlocal now
        seen.append((now, "$ " + (shown or command), True))
        now += TYPING * len(shown or command) + 0.3
        begun = time.monotonic()
        bash = ["bash", "-c", command]
        done = subprocess.run(bash, cwd=folder, env=environment, text=True, capture_output=True, timeout=60)
        now += min(time.monotonic() - begun, 2.0)
        for line in (done.stdout + done.stderr).splitlines():
            if not line.startswith("cluster_id"):
                seen.append((now, line, False))
        now += PAUSE
        return done.stdout

    run("cluster/run.sh start")
    hold = 'lockkeeper lock nightly --why "rebuild the index" sleep 60 &'
    holder = subprocess.Popen([str(BINARY), *shlex.split(hold)[1:-1]], cwd=folder, env=environment)
    run("sleep 1", hold)
    run("lockkeeper show nightly")
    status = run("lockkeeper status")
    leader = re.search(r"node (\d) leads", status).group(1)
    run(f"cluster/run.sh kill {leader}")
    run("lockkeeper status")
    run("lockkeeper show nightly")
    run(f"cluster/run.sh restart {leader}")
    holder.terminate()
    holder.wait()
    return seen


def as_shown(line):
    """The line with the usual ports, without process ids and the name of this machine."""
    line = re.sub(r"\b277([012]\d)( ?)", r"76\1\2\2", line)
    line = re.sub(r" \(process \d+, log (\S+)\)", r" (log \1)", line)
    line = re.sub(r"ada@\S+ sleep \(\d+\)", lambda found: "ada@db1 sleep".ljust(len(found.group(0))), line)
    return line.replace(" (process ", " (").rstrip()


def draw(seen):
    height = TOP + LINE * len(seen) + 12
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    font = "12px ui-monospace,Menlo,Consolas,monospace"
    colours = enumerate(("#f66", "#fc6", "#6c6"))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} xml:space="preserve">',
        "<title>A lock stays held when the leader is killed</title>",
        f"<style>text{{font:{font};fill:#d5dbe3;white-space:pre}}.c{{fill:#8fd19e}}</style>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#161b22"/>',
        *(f'<circle cx="{20 + 18 * n}" cy="18" r="5" fill="{colour}"/>' for n, colour in colours),
    ]
    for row, (at, line, typed) in enumerate(seen):
        # Without animation, all lines are visible.
        parts.append(
            f'<text class="{"c" if typed else "o"}" x="{LEFT}" y="{TOP + LINE * row + 12}">'
            f'<animate attributeName="opacity" values="0" dur="{at:.1f}s"/>{html.escape(as_shown(line))}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        environment = stage(folder)
        try:
            seen = record(folder, environment)
        finally:
            subprocess.run(["cluster/run.sh", "stop"], cwd=folder, env=environment, capture_output=True, check=False)
    (ROOT / "src/manual/recording.svg").write_text(draw(seen))


main()
