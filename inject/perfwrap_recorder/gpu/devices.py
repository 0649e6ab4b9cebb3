"""The device that the program trains on, and the functions of torch that time, count and synchronise its work.

One layer for CUDA, ROCm (which PyTorch calls cuda), XPU, MPS, MTIA, NPU and every other device that is registered as
PrivateUse1: PyTorch gives all of them the same names, in ``torch._C`` with the name of the device in front, in the
module ``torch.<name>``, and in ``torch.accelerator`` if this version has it. What a device lacks is None here, and the
probe that needs it records nothing.

A build of torch for CUDA, ROCm or XPU has its device from the start. Any other device is found when a model with
parameters on it is first called: its backend may be imported at any time, and a program without one pays nothing. In
the child of a fork such a device is forgotten, since most devices do not work there.

All functions return at once, except ``synchronize``, and none starts a device that the program has not started. Those
in C come first: they cost less, and Dynamo would trace those in Python.
"""

from __future__ import annotations

from _thread import get_ident

from perfwrap_recorder.uncollected import uncollected

HOSTS = ("cpu", "meta")
"""Devices that are not asked: their work is done when the call returns, or there is none."""

BUILDS = (("cuda", "cuda"), ("hip", "cuda"), ("xpu", "xpu"))
"""Names in ``torch.version`` that are set in builds for a device, and the name of the device."""

METHOD_IN_C = type(list.append)

current = None  # the Device, once there is one
waiting = set()  # threads of the program in which the recorder calls a device's own ``synchronize``
_followers = []  # functions() to call when it changes


class Device:
    """The functions of one kind of device; each attribute is a function, or None if the device has none."""

    def __init__(self, torch, kind):
        module = getattr(torch, kind)
        in_c, own, shared = _finders(torch, kind, module)
        self.kind, self.module = kind, module
        self.is_chosen = False
        """Whether it was found by the parameters of a model, and not by the build."""
        self.is_initialized = own("is_initialized") or _yes
        self.is_capturing = in_c("isCurrentStreamCapturing") or own("is_current_stream_capturing") or _no
        self.current_device = in_c("getDevice") or own("current_device") or shared("getDeviceIndex") or _zero
        self.current_stream = in_c("getCurrentStream") or own("current_stream") or shared("getStream")
        self._stream_class = own("Stream")
        self.synchronize = _synchronize(kind, in_c, own, shared, self.current_device)
        self.memory_stats = in_c("memoryStats") or _own_stats(own) or _shared_stats(shared)
        self.attach_out_of_memory_observer = in_c("attach_out_of_memory_observer")
        self.is_history_enabled = in_c("isHistoryEnabled")
        self.memory_snapshot = in_c("memorySnapshot")
        graphs = (own(kind.upper() + "Graph"), getattr(getattr(torch, "accelerator", None), "Graph", None))
        self.graphs = [each for each in graphs if hasattr(each, "capture_begin")]
        """The classes whose instances capture work instead of doing it."""
        self.make_event = self.record = self.query = self.elapsed_time = None
        self._find_events(torch, own)

    def _find_events(self, torch, own):
        event = own("Event") or getattr(own("event"), "Event", None)
        if event is not None:
            self.make_event = event
        elif self.current_stream is not None and hasattr(torch, "Event"):
            event = torch.Event
            self.make_event = lambda enable_timing: event(self.kind, enable_timing=enable_timing)
        if not hasattr(event, "elapsed_time"):
            self.make_event = None
            return
        base = next((each for each in event.__mro__ if type(vars(each).get("record")) is METHOD_IN_C), event)
        self.record, self.query, self.elapsed_time = base.record, base.query, base.elapsed_time
        if self.current_stream is None:  # a device with one stream, whose events are recorded without it
            record = base.record
            self.record = lambda event, stream: record(event)
            self.current_stream = _zero

    def make_stream(self, key):
        """Return the stream of a result of ``current_stream``: of its three numbers, or itself."""
        if type(key) is not tuple:
            return key
        number, index, kind = key
        return self._stream_class(stream_id=number, device_index=index, device_type=kind)


def follow(bind):
    """Call ``bind()`` now, and again when the device is found: for wrappers that keep its functions."""
    _followers.append(bind)
    bind()


def find_in_build(torch):
    """Use the device that this build of torch is made for, if any."""
    if current is not None:
        return
    for build, kind in BUILDS:
        if getattr(torch.version, build, None):
            use(Device(torch, kind))
            return


def choose(torch, kind):
    """Use the device of a model's parameters, by its name, if there is none that the program has started."""
    if kind in HOSTS or not hasattr(torch, kind):
        return
    if current is not None and (current.kind == kind or current.is_initialized()):
        return
    found = Device(torch, kind)
    found.is_chosen = True
    uncollected(use)(found)  # it changes functions of the device's module


def use(found):
    """Make this the device."""
    global current
    current = found
    for bind in list(_followers):
        bind()


def is_started():
    """Return whether there is a device and the program has started it."""
    return current is not None and current.is_initialized()


def forget_in_child():
    """Forget a device that was chosen, in the child of a fork."""
    if current is not None and current.is_chosen:
        use(None)


def _finders(torch, kind, module):
    """Return functions that find a function by its name: in C, of the device's module, of torch.accelerator."""
    is_of_build = (
        kind in dict(BUILDS).values()
    )  # some versions start CUDA when they are asked for the accelerator
    find = None if is_of_build else getattr(torch._C, "_accelerator_getAccelerator", None)
    is_shared = find is not None and getattr(find(), "type", "") == kind

    def in_c(name):
        return getattr(torch._C, "_%s_%s" % (kind, name), None)

    def own(name):
        return getattr(module, name, None)

    def shared(name):
        return getattr(torch._C, "_accelerator_" + name, None) if is_shared else None

    return in_c, own, shared


def _synchronize(kind, in_c, own, shared, current_device):
    """Return a function that waits for the current device; the probe of waits does not record it."""
    if kind == "cuda":
        return in_c("synchronize")
    if own("synchronize") and not in_c("synchronize"):
        return _unrecorded(own("synchronize"))
    wait = in_c("synchronize") or shared("synchronizeDevice")
    return wait and (lambda: wait(current_device()))


def _unrecorded(function):
    def call():
        thread = get_ident()
        waiting.add(thread)
        try:
            function()
        finally:
            waiting.discard(thread)

    return call


def _shared_stats(shared):
    """Return a function that returns the statistics of an allocator that follows torch.accelerator."""
    ask, has_any = shared("getDeviceStats"), shared("isAllocatorInitialized")
    if not (ask and has_any):
        return None
    try:
        has_any()
    except RuntimeError:  # the device has another sort of allocator
        return None
    return lambda index: ask(index) if has_any() else {}


def _own_stats(own):
    """Return a function that returns the statistics of a device's own allocator."""
    if own("memory_stats"):
        return own("memory_stats")
    allocated, reserved = own("current_allocated_memory"), own("driver_allocated_memory")  # MPS
    if not (allocated and reserved):
        return None
    return lambda index: {
        "allocated_bytes.all.current": allocated(),
        "reserved_bytes.all.current": reserved(),
    }


def _yes():
    return True


def _no():
    return False


def _zero(index=0):
    return 0
