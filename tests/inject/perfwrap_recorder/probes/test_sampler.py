"""Samples of a real training loop name the phase that each line was in."""

from __future__ import annotations

START = """
journal.settings.sample_hz = 200
import_module("perfwrap_recorder.probes.sampler").install(torch)
"""

TRAIN = """
from perfwrap_recorder import sampler
taken = [0]
take = sampler.Samples.take
def count(self):
    take(self)
    taken[0] += 1
sampler.Samples.take = count
def spin():
    until, limit = taken[0] + 5, clock.now() + 60 * 10**9
    while taken[0] < until and clock.now() < limit: sum(range(100))
class Data(torch.utils.data.Dataset):
    def __len__(self): return 2
    def __getitem__(self, index):
        spin()  # DATA
        return torch.ones(2)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
    def forward(self, x):
        spin()  # FORWARD
        return self.layer(x)
class Descent(torch.optim.SGD):
    def step(self, closure=None):
        spin()  # OPTIMIZER
        return super().step(closure)
net = Net()
optimizer = Descent(net.parameters(), lr=0.1)
def train(workers):
    for x in torch.utils.data.DataLoader(Data(), num_workers=workers):
        spin()  # PYTHON
        net(x).sum().backward()
        optimizer.step()
"""


def test_each_line_is_in_the_phase_that_runs_it(train) -> None:
    done = train(START + TRAIN + "train(0)\n")
    found = {record.label for record in done.journal.of("STACK") if record.line[2] == "spin"}
    assert {"", "fetch", "forward", "optimizer"} <= found


def test_workers_are_sampled_in_their_own_journals(train) -> None:
    done = train(START + TRAIN + "train(1)\n")
    workers = [found for found in done.journals if found.facts.get("role") == "worker"]
    assert workers
    assert any(record.line[2] == "spin" for found in workers for record in found.of("STACK"))


GLANCE = """
journal.settings.glance = True
from perfwrap_recorder.probes import sampler as probe
probe.HERTZ = 200
"""

LOOK = """
probe.install(torch)
layer = nn.Linear(2, 1)
descent = torch.optim.SGD(layer.parameters(), 0.1)
def step():
    descent.zero_grad()
    layer(torch.ones(2)).sum().backward()
    descent.step()
def step_until(done):
    limit = clock.now() + 60 * 10**9
    while not done() and clock.now() < limit: step()
    assert done()
def threads(): return len(sys._current_frames())
"""


def test_a_glance_begins_after_the_first_steps_and_ends_by_itself(train) -> None:
    done = train(
        GLANCE
        + """
probe.MOST = 7
probe._left = [7]
"""
        + LOOK
        + """
step(), step()
assert threads() == 1
step_until(lambda: threads() == 2)
step_until(lambda: threads() == 1)
for _ in range(200): step()
assert threads() == 1
"""
    )
    journal = done.journal
    assert sum(record.value for record in journal.of("STACK")) == 7
    assert len({record.thread for record in journal.of("STACK")}) == 1
    said = [record for record in journal.of("COVERAGE") if record.name == "probe/sampler"]
    assert [journal.texts[record.value] for record in said] == ["200 Hz, 7 times"]


def test_a_fork_finds_no_thread_of_a_glance_which_goes_on_afterwards(train) -> None:
    done = train(
        """
from perfwrap_recorder import sampler
seen = []
os.register_at_fork(before=lambda: seen.append(threads()))  # what was registered last is called first
"""
        + GLANCE
        + LOOK
        + """
for _ in range(3):
    step_until(lambda: threads() == 2 and sampler._latest.taken)
    child = os.fork()
    if not child:
        assert threads() == 1
        for _ in range(3): step()
        os._exit(7)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 7
print(seen, probe._left[0] < probe.MOST)
step_until(lambda: threads() == 2)
"""
    )
    assert done.stdout == "[1, 1, 1] True\n"


def test_workers_are_not_glanced_at(train) -> None:
    done = train(
        GLANCE
        + """
probe.install(torch)
class Data(torch.utils.data.Dataset):
    def __len__(self): return 300
    def __getitem__(self, index):
        from perfwrap_recorder import sampler
        return torch.tensor([sampler._alarm is None, os.getpid()])
batches = [batch[0].tolist() for batch in torch.utils.data.DataLoader(Data(), num_workers=1)]
print({asleep for asleep, _ in batches}, os.getpid() in {pid for _, pid in batches})
"""
    )
    assert done.stdout == "{1} False\n"


def test_without_being_asked_there_is_no_thread(train) -> None:
    done = train("""
import time
nn.Linear(1, 1)(torch.ones(1))
from perfwrap_recorder import sampler
print(len(sys._current_frames()), sampler._alarm)
""")
    assert done.stdout == "1 None\n"
    assert not done.journal.of("STACK")
