"""A device that is no part of PyTorch is found by the parameters of a model, and recorded like a GPU.

The device is written in Python and has real asynchrony, see ``queued_device.py``.
"""

from __future__ import annotations

from ..away import needs_away

NAME = "queued"

USE = f"""
sys.path.insert(0, {str(__file__.rpartition("/probes/")[0])!r})
import queued_device
queued_device.register()
from perfwrap_recorder.gpu import devices, gpu_events
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
    def forward(self, x):
        queued_device.launch("forward", 0.002)
        return x * self.weight
"""


@needs_away
def test_the_device_is_that_of_the_models_parameters(train) -> None:
    done = train(
        USE
        + f"""
net = Net()
net(torch.ones(4))
assert devices.current is None
class Other(Net): pass
other = Other().to({NAME!r})
x = torch.ones(4, device={NAME!r})
loss = other(x).sum()
assert devices.current.kind == {NAME!r} and devices.current.is_chosen
for _ in range(3):
    loss = other(x).sum()
    loss.backward()
    loss.item()
torch.{NAME}.synchronize()
gpu_events.ask_events()
"""
    )
    kinds = [span.value & 0xFF for span in done.journal.of("GPU")]
    assert kinds == [36, 37] * 3, "the first call, which showed the device, is not timed"
    assert all(span.duration > 2_000_000 for span in done.journal.of("GPU")[::2])
    tracks = {record.thread: record.name for record in done.journal.of("THREAD")}
    assert {tracks[span.thread] for span in done.journal.of("GPU")} == {"cuda/0 stream 0"}
    reads = [span for span in done.journal.of("SYNC") if span.label == "Tensor.item"]
    assert [span.value for span in reads] == [1, 1, 1]
    (wait,) = (span for span in done.journal.of("SYNC") if span.label == f"torch.{NAME}.synchronize")
    assert wait.value == 1
    copies = [span for span in done.journal.of("TRANSFER") if span.label == "Module.to"]
    assert [(span.value >> 8, span.value & 3) for span in copies] == [(16, 1)]
    assert "probe/gpu_time" in {record.name for record in done.journal.of("COVERAGE")}


@needs_away
def test_the_child_of_a_fork_forgets_a_device_that_was_chosen(train) -> None:
    done = train(
        USE
        + f"""
net = Net().to({NAME!r})
x = torch.ones(4, device={NAME!r})
for _ in range(2): net(x)
queued_device.synchronize()
child = os.fork()
if child == 0:
    queued_device.Event = None  # its thread does not exist in the child
    net.weight.sum
    nn.Linear(4, 4)(torch.ones(4))
    gpu_events.ask_events()
    os._exit(devices.current is not None or gpu_events.api is not None or bool(guard.failed))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if hasattr(os, "waitstatus_to_exitcode") else 0)
net(x)
"""
    )
    assert done.stdout == "0\n"
