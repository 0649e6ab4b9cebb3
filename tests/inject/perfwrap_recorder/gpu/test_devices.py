"""The functions of a device are found by the names that all devices of PyTorch share.

What stands in for torch has the names of one device and nothing else; ``probes/gpu/test_chosen_device.py`` uses a
device that PyTorch knows.
"""

from __future__ import annotations

import pytest

STAND_IN = """
from types import SimpleNamespace
from perfwrap_recorder.gpu.devices import Device

def named(*names):
    return {name: (lambda *arguments, name=name: (name, *arguments)) for name in names}

class Base:  # as in C: its methods are descriptors
    record, query, elapsed_time = list.append, list.copy, list.index

class Event(Base):
    def record(self, stream=None): raise AssertionError("the one in Python")
    query = elapsed_time = record

class Stream:
    def __init__(self, **numbers): self.numbers = numbers
"""


def check(run, program: str) -> None:
    """Run a program that asserts."""
    assert run(STAND_IN + program).stdout == ""


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_a_device_of_a_build_has_its_functions_in_c(run, kind: str) -> None:
    check(
        run,
        f"""
kind = {kind!r}
own = named("is_initialized", "current_device", "current_stream", "synchronize", "memory_stats", "init")
c = named(*("_%s_%s" % (kind, name) for name in ("getDevice", "getCurrentStream", "isCurrentStreamCapturing",
    "memoryStats", "synchronize", "attach_out_of_memory_observer", "isHistoryEnabled", "memorySnapshot")))
c["_accelerator_getAccelerator"] = None  # may start the device: it must not be asked
graph = type("Graph", (), {{"capture_begin": 1, "capture_end": 2}})
module = SimpleNamespace(Event=Event, Stream=Stream, **own)
setattr(module, kind.upper() + "Graph", graph)
device = Device(SimpleNamespace(**{{kind: module, "_C": SimpleNamespace(**c)}}), kind)
assert device.is_initialized is own["is_initialized"]
assert device.is_capturing is c["_%s_isCurrentStreamCapturing" % kind]
assert device.current_device is c["_%s_getDevice" % kind]
assert device.current_stream is c["_%s_getCurrentStream" % kind]
assert device.memory_stats is c["_%s_memoryStats" % kind]
assert device.attach_out_of_memory_observer is c["_%s_attach_out_of_memory_observer" % kind]
assert device.is_history_enabled is c["_%s_isHistoryEnabled" % kind]
assert device.memory_snapshot is c["_%s_memorySnapshot" % kind]
assert device.make_event is Event and device.graphs == [graph]
assert (device.record, device.query, device.elapsed_time) == (Base.record, Base.query, Base.elapsed_time)
assert device.make_stream((1, 2, 3)).numbers == {{"stream_id": 1, "device_index": 2, "device_type": 3}}
assert device.synchronize()[0] == "_%s_synchronize" % kind
assert (device.synchronize is c["_cuda_synchronize"]) if kind == "cuda" else device.synchronize()[1:]
""",
    )


def test_a_device_that_only_has_a_module_is_used_through_it(run) -> None:
    check(
        run,
        """
class Plain(Event):
    def record(self, stream=None): return "plain", stream
own = named("current_device", "current_stream", "synchronize", "memory_stats", "is_current_stream_capturing")
device = Device(SimpleNamespace(npu=SimpleNamespace(Event=Event, Stream=Stream, **own), _C=SimpleNamespace()), "npu")
assert device.is_initialized() is True
assert device.is_capturing is own["is_current_stream_capturing"]
assert device.current_stream(0) == ("current_stream", 0) and device.current_device() == ("current_device",)
assert device.memory_stats(0) == ("memory_stats", 0)
stream = Stream()
assert device.make_stream(stream) is stream
from perfwrap_recorder.gpu import devices
def wait(): assert devices.waiting  # so that the probe of waits leaves it out
device = Device(SimpleNamespace(npu=SimpleNamespace(synchronize=wait), _C=SimpleNamespace()), "npu")
device.synchronize()
assert not devices.waiting and device.make_event is None and device.memory_stats is None
""",
    )


def test_a_device_without_functions_of_its_own_is_used_through_the_accelerator(run) -> None:
    check(
        run,
        """
names = ("getDeviceIndex", "getStream", "synchronizeDevice", "getDeviceStats", "isAllocatorInitialized")
c = named(*("_accelerator_" + name for name in names))
c["_accelerator_getAccelerator"] = lambda: SimpleNamespace(type="openreg")
class TorchEvent(Base):
    def __init__(self, device, enable_timing): self.given = device, enable_timing
torch = SimpleNamespace(openreg=SimpleNamespace(), Event=TorchEvent, _C=SimpleNamespace(**c))
device = Device(torch, "openreg")
assert device.current_stream(3) == ("_accelerator_getStream", 3)
assert device.make_event(enable_timing=True).given == ("openreg", True)
assert device.memory_stats(2) == ("_accelerator_getDeviceStats", 2)
assert device.synchronize() == ("_accelerator_synchronizeDevice", ("_accelerator_getDeviceIndex",))
torch._C._accelerator_isAllocatorInitialized = lambda: False
assert Device(torch, "openreg").memory_stats(2) == {}
def other_sort(): raise RuntimeError("not a DeviceAllocator")
torch._C._accelerator_isAllocatorInitialized = other_sort
assert Device(torch, "openreg").memory_stats is None
other = Device(SimpleNamespace(hpu=SimpleNamespace(), _C=torch._C), "hpu")  # not the accelerator
assert other.current_device() == 0 and other.memory_stats is None and other.make_event is None
""",
    )


def test_a_device_with_one_stream_records_events_without_it(run) -> None:
    check(
        run,
        """
class One:
    def __init__(self, enable_timing): self.recorded = 0
    def record(self): self.recorded += 1
    def query(self): return True
    def elapsed_time(self, other): return 2.5
own = {"current_allocated_memory": lambda: 7, "driver_allocated_memory": lambda: 9, "synchronize": lambda: None}
module = SimpleNamespace(event=SimpleNamespace(Event=One), **own)
device = Device(SimpleNamespace(mps=module, _C=SimpleNamespace()), "mps")
event = device.make_event(enable_timing=True)
device.record(event, device.make_stream(device.current_stream(0)))
assert event.recorded == 1 and device.query(event) and device.elapsed_time(event, event) == 2.5
from perfwrap_recorder.probes.gpu.memory import pick
assert pick(device.memory_stats(0)) == [("allocated_bytes", 7), ("reserved_bytes", 9)]
""",
    )


def test_of_a_real_build_for_a_device_no_function_is_missing(warm_run) -> None:
    done = warm_run("""
import torch
from perfwrap_recorder.gpu import devices
devices.find_in_build(torch)
found = devices.current
print(found and found.kind, found and sorted(name for name, value in vars(found).items() if value is None))
if found and found.kind == "cuda":
    c = torch._C
    assert (found.current_device, found.current_stream) == (c._cuda_getDevice, c._cuda_getCurrentStream)
    assert (found.memory_stats, found.synchronize) == (c._cuda_memoryStats, c._cuda_synchronize)
    assert found.record is c._CudaEventBase.record and found.query is c._CudaEventBase.query
    assert found.make_event is torch.cuda.Event and torch.cuda.CUDAGraph in found.graphs
    assert not torch.cuda.is_initialized()
""")
    assert done.stdout in ("None None\n", "cuda []\n", "xpu ['attach_out_of_memory_observer']\n")
