"""Two hosts on one machine: network, name and clock of their own; one dies, or the link is slow, and a report says so.

A host is a network namespace with a UTS, a PID and a time namespace. Its CLOCK_MONOTONIC differs by the time
namespace; its wall clock by a library that its processes load first.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from perfwrap.run_folder import RunFolder

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

PATIENCE_SECONDS = 200
WALL_SKEW_SECONDS = 3
MONOTONIC_SKEW_SECONDS = 5_000
ENOUGH_STEPS = 40

LINK = "40mbit"
"""A data centre's machines have thousands of it."""

TRAIN = """\
import os, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
step = 0
while True:
    loss = model(torch.randn(16, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step == ENOUGH:
        open("ready" + os.environ["RANK"], "w").close()
""".replace("ENOUGH", str(ENOUGH_STEPS))

SHORT_TRAIN = (
    TRAIN.replace("while True:", "while step < 60:")
    .replace("nn.Linear(64, 8)", "nn.Linear(256, 512)")
    .replace("torch.randn(16, 64)", "torch.randn(16, 256)")
)

CLOCK = """\
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *found) {
    int result = syscall(SYS_clock_gettime, clock, found);
    if (result == 0 && clock == CLOCK_REALTIME) found->tv_sec += SKEW;
    return result;
}
"""


def quiet(*words: str) -> bool:
    """Run a command of the system's; say whether it worked."""
    return subprocess.run(words, capture_output=True, timeout=60).returncode == 0


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[dict[str, list[str]]]:
    """Return, for two hosts, the words that start a command there; skip where the kernel allows no such thing."""
    tools = ("ip", "unshare", "hostname", "gcc")
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        pytest.skip(f"there is no {missing[0]}")
    if not quiet("unshare", "--uts", "--time", "--monotonic", "5", "--fork", "hostname", "other"):
        pytest.skip("name and time namespaces are not allowed here")
    names = [f"pw{os.getpid()}{letter}" for letter in "ab"]
    if not all(quiet("ip", "netns", "add", name) for name in names):
        quiet("ip", "netns", "del", names[0])
        pytest.skip("network namespaces are not allowed here")
    try:
        quiet(
            "ip",
            "link",
            "add",
            "v0",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            "v0",
            "netns",
            names[1],
        )
        for number, name in enumerate(names, start=1):
            quiet("ip", "-n", name, "address", "add", f"10.77.0.{number}/24", "dev", "v0")
            for device in ("v0", "lo"):
                quiet("ip", "-n", name, "link", "set", device, "up")
        (tmp_path / "clock.c").write_text(CLOCK)
        library = tmp_path / "clock.so"
        assert quiet(
            "gcc",
            "-shared",
            "-fPIC",
            f"-DSKEW={WALL_SKEW_SECONDS}",
            "-o",
            str(library),
            str(tmp_path / "clock.c"),
        )
        spaces = ["unshare", "--uts", "--time", "--pid", "--mount-proc", "--fork", "--kill-child"]
        other = [*spaces, "--monotonic", str(MONOTONIC_SKEW_SECONDS), "env", f"LD_PRELOAD={library}"]
        named = ["sh", "-c", 'hostname "$0" && exec "$@"']
        yield {
            "first": ["ip", "netns", "exec", names[0], *spaces, *named, "first"],
            "second": ["ip", "netns", "exec", names[1], *other, *named, "second"],
        }
    finally:
        for name in names:
            quiet("ip", "netns", "del", name)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts a command in a session of its own; what is left of it is killed at the end."""
    started: list[subprocess.Popen[str]] = []
    places = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "v0", "TP_SOCKET_IFNAME": "v0"}

    def run(words: list[str]) -> subprocess.Popen[str]:
        options: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, **places}, "text": True}
        log = (tmp_path / f"log{len(started)}").open("w")
        started.append(
            subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, **options)
        )
        return started[-1]

    yield run
    for process in started:
        kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a session as if its machine failed: no process can write anything more."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait_for(condition: Callable[[], bool], what: str, place: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        logs = "".join(path.read_text()[-2000:] for path in sorted(place.glob("log*")))
        assert time.monotonic() < deadline, f"waited in vain for {what}: {logs}"
        time.sleep(0.1)


def launch(
    hosts: dict[str, list[str]],
    start: Callable[..., subprocess.Popen[str]],
    place: Path,
    script: str,
    port: int,
) -> dict[str, subprocess.Popen[str]]:
    """Start a script by torchrun under perfwrap, one rank on each host, into one run folder."""
    (place / "train.py").write_text(script)
    python = [sys.executable, "-m"]
    running = {}
    for number, (host, prefix) in enumerate(hosts.items()):
        torchrun = [*python, "torch.distributed.run", "--nnodes", "2", "--node-rank", str(number)]
        meeting = ["--master-addr", "10.77.0.1", "--master-port", str(port), "--nproc-per-node", "1"]
        record = ["perfwrap", "run", "--run-id", "it", "--out", str(place / "run"), "--no-report", "--"]
        running[host] = start([*prefix, *python, *record, *torchrun, *meeting, "train.py"])
        # Who comes first leads, and the run's clock is the leader's.
        wait_for((place / "run" / "run.json").exists, "the launcher", place)
    return running


def report(place: Path) -> Any:
    """Return the diagnosis of the run."""
    words = [sys.executable, "-m", "perfwrap", "report", str(place / "run"), "--format", "json"]
    reported = subprocess.run(words, capture_output=True, text=True)
    assert reported.returncode == 0, reported.stderr
    return json.loads(reported.stdout)


def test_two_hosts_with_skewed_clocks_make_one_run_of_which_one_may_die(
    hosts: dict[str, list[str]], start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    running = launch(hosts, start, tmp_path, TRAIN, 29571)
    wait_for(lambda: all((tmp_path / f"ready{rank}").exists() for rank in (0, 1)), "both ranks", tmp_path)
    kill(running["second"])
    wait_for(lambda: running["first"].poll() is not None, "the host that lives", tmp_path)
    document = report(tmp_path)
    assert {(rank["rank"], rank["host"]) for rank in document["ranks"]} == {(0, "first"), (1, "second")}
    assert all(rank["steps"] >= ENOUGH_STEPS - 1 for rank in document["ranks"])
    warnings = " ".join(document["warnings"])
    assert "The clocks of second were aligned with the clock of first" in warnings
    assert "1 of the 2 launchers of this run have not recorded their end (second)" in warnings
    _check_clocks(tmp_path / "run")


@pytest.mark.timing
def test_a_slow_link_between_two_hosts_is_what_holds_them_back(
    hosts: dict[str, list[str]], start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    limit = ["tc", "qdisc", "add", "dev", "v0", "root", "tbf", "rate", LINK]
    limit += ["burst", "32kbit", "latency", "400ms"]
    if not all(quiet(*prefix[: prefix.index("unshare")], *limit) for prefix in hosts.values()):
        pytest.skip("there is no tc that can make a link slow")
    running = launch(hosts, start, tmp_path, SHORT_TRAIN, 29573)
    wait_for(lambda: all(process.poll() is not None for process in running.values()), "the end", tmp_path)
    document = report(tmp_path)
    assert document["verdict"]["id"] == "communication-bound"
    finding = document["findings"][0]
    assert finding["rule"] == "exposed_communication"
    assert finding["share"] > 0.5
    assert (Path(finding["location"]["file"]).name, finding["location"]["line"]) == ("train.py", 7)
    assert "per second over its network" in " ".join(finding["evidence"])


def _check_clocks(run: Path) -> None:
    """Check that the offset found is the wall clock's skew, to within the error that it states."""
    from perfwrap.measures.ranks.host_clocks import aligned
    from perfwrap.sources.journals import run_journals

    _, offsets = aligned(run_journals.read(RunFolder(run)))
    found = offsets["second"]
    assert found is not None and found.proven
    # Both wall clocks are the same machine's: the skew is exact.
    assert abs(found.offset_ns + WALL_SKEW_SECONDS * 10**9) <= found.error_ns + 1_000_000
    print(f"offset {found.offset_ns} ns, error {found.error_ns} ns, {found.exchanges} exchanges")
