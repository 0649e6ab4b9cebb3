"""Graphs that stay alive are reported by the line that made them, and the recorder keeps none alive."""

from __future__ import annotations

import pytest

BEGIN = """
from perfwrap_recorder.probes.loop import live_graphs
live_graphs.PACE_NS = 0
journal.OFTEN_INTERVAL_NS = 0
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
kept, total = [], 0.0
def step():
    global total
    output = net(torch.ones(4, 8))  # FORWARD
    loss = output.square().mean()
    optimizer.zero_grad()
    loss.backward()  # BACKWARD
    optimizer.step()
    LEAK
    return loss
for _ in range(120):
    step()
"""


def reported(done) -> dict[str, tuple[str, int, int]]:
    """Return for each kind the mark of its line, how many graphs were noted long ago, and how many still lived."""
    program = (done.run_dir / "program.py").read_text().splitlines()
    facts, found = done.journals[0].facts, {}
    for number in range(1, 20):
        prefix = f"live_graph/{number}/"
        if prefix + "kind" in facts:
            line = int(facts[prefix + "line"].split("\x1f")[1])
            mark = program[line - 1].rpartition("# ")[2]
            counts = (int(facts.get(prefix + name, 0)) for name in ("old", "alive"))
            found[facts[prefix + "kind"]] = (mark, *counts)
    return found


@pytest.mark.parametrize(
    ("leak", "kinds"),
    [
        ("kept.append(loss)", {"backward", "forward", "inside"}),
        ("total = total + loss", {"backward", "forward", "inside"}),
        ("kept.append(output)", {"forward", "inside"}),
    ],
)
def test_graphs_that_are_kept_are_reported_by_line(train, leak: str, kinds: set[str]) -> None:
    found = reported(train(BEGIN.replace("LEAK", leak)))
    assert {kind for kind, (_, old, alive) in found.items() if old >= 5 and alive >= 0.9 * old} == kinds
    assert found["backward"][0] == "BACKWARD"
    assert found["forward"][0] == "FORWARD"


def test_what_a_module_keeps_of_its_inside_is_reported(train) -> None:
    program = BEGIN.replace("LEAK", "pass").replace(
        "def step",
        "net[1].register_forward_hook(lambda module, given, result: kept.append(result))\ndef step",
    )
    found = reported(train(program))
    assert found["forward"][2] == 0
    assert found["inside"][1] >= 5
    assert found["inside"][2] >= 0.9 * found["inside"][1]


@pytest.mark.parametrize("healthy", ["kept.append(loss.item())", "kept.append(output.detach())", "pass"])
def test_a_healthy_loop_keeps_nothing_and_neither_does_the_recorder(train, healthy: str) -> None:
    done = train(BEGIN.replace("LEAK", healthy))
    found = reported(done)
    assert set(found) == {"backward", "forward", "inside"}
    assert all(old >= 5 and alive == 0 for _, old, alive in found.values())


def test_tensors_garbage_and_random_numbers_are_as_without_it(train) -> None:
    program = """
import gc, weakref
from perfwrap_recorder.probes.loop import live_graphs
live_graphs.PACE_NS = 0 if ACTIVE else 1 << 60
live_graphs._due = 0 if ACTIVE else 1 << 62
journal.OFTEN_INTERVAL_NS = 0
torch.manual_seed(0)
net = nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
gone = []
gc.collect()
gc.disable()
for _ in range(60):
    loss = net(torch.randn(4, 8)).square().mean()
    gone.append(weakref.ref(loss))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
print(sum(one() is not None for one in gone), gc.collect(), loss.item(), torch.rand(1).item())
"""
    outputs = {train(program.replace("ACTIVE", active)).stdout for active in ("True", "False")}
    assert len(outputs) == 1
    assert outputs.pop().startswith("1 ")


def test_its_memory_is_bounded_and_graphs_of_subclasses_are_left_alone(train) -> None:
    done = train("""
from perfwrap_recorder.probes.loop import live_graphs
class Own(torch.Tensor): pass
for number in range(1000):
    live_graphs.left = 1
    loss = torch.ones(1, requires_grad=True) * 2
    live_graphs.note("backward", number % 50, None, loss if number % 2 else {"loss": (loss,), "more": loss})
    live_graphs.note("backward", 100, None, loss.as_subclass(Own))
assert len(live_graphs._sites) == live_graphs.SITES
assert max(len(site.notes) for site in live_graphs._sites.values()) < live_graphs.NOTES
assert ("backward", 100) not in live_graphs._sites
""")
    assert done.returncode == 0


def test_a_forked_child_reports_its_own_graphs_only(train) -> None:
    done = train(
        BEGIN.replace("LEAK", "kept.append(loss)")
        + """
if not os.fork():
    assert not live_graphs._sites
    os._exit(0)
assert os.wait()[1] == 0
"""
    )
    assert done.returncode == 0
