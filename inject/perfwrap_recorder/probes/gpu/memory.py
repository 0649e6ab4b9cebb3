"""Samples the GPU memory of torch's allocator, and writes what fills it when it runs out.

Instruments ``empty_cache`` of ``torch.cuda``, ``torch.accelerator`` and the device's own module. Once the program
itself has started the device, an observer is registered that torch calls when memory has run out, and at the end of a
step, at most ten times a second, the allocator's own counters are read, which does not wait for the GPU. Peaks are
those since the program last reset them, which this probe never does. The user could notice one more frame in a
traceback.

When memory has run out, a file in the run folder lists the largest live blocks by the Python lines that allocated
them, if the program records memory history; the history itself is never switched on. Nothing is seen of
memory that other libraries hold, nor of other allocators than torch's own (``cudaMallocAsync`` counts less).
"""

from __future__ import annotations

import os
from sys import _getframe

from perfwrap_recorder import guard, journal_format
from perfwrap_recorder.gpu import devices
from perfwrap_recorder.instrumenting import timing
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import source_lines
from perfwrap_recorder.program.source_lines import label

COUNTERS = (
    ("allocated_bytes", ("allocated_bytes", "all", "current")),
    ("reserved_bytes", ("reserved_bytes", "all", "current")),
    ("peak_allocated_bytes", ("allocated_bytes", "all", "peak")),
    ("peak_reserved_bytes", ("reserved_bytes", "all", "peak")),
    ("alloc_retries_count", ("num_alloc_retries",)),
    ("ooms_count", ("num_ooms",)),
    ("device_allocs_count", ("num_device_alloc",)),
    ("device_frees_count", ("num_device_free",)),
)
"""Metrics, and their place in the allocator's statistics, which are nested, or flat with dots between the names.

What a version of torch or a device lacks is not written.
"""

FOLDER = "memory"
MAX_FILES = 3
MAX_MARKS = 20
TOP = 50
"""Maximum number of stacks in a file, those with most bytes first."""

LIVE = "active_allocated"

_watched = []  # the devices.Device whose allocator is observed
_written = {}  # (device, metric) -> value as last written
_ended = [0, 0]  # how often memory ran out, and how many files that made


def install(torch):
    """Start recording, once there is a device with such an allocator."""
    _time_emptying(torch, torch.cuda.memory, lambda: torch.cuda.is_initialized())
    accelerator = getattr(torch, "accelerator", None)
    _time_emptying(torch, getattr(accelerator, "memory", None), devices.is_started)
    devices.follow(lambda: _follow(torch))


def _follow(torch):
    """Read the counters of the device's allocator, if it has any."""
    device = devices.current
    if device is None:
        return
    _time_emptying(torch, device.module, devices.is_started)
    if device.memory_stats is None or _look_guarded in journal.often:
        return
    journal.look_often(_look_guarded)
    journal.after_fork.add(_forget)
    journal.cover("probe/memory")


def _time_emptying(torch, module, is_started):
    def finish(frame, start, duration, _):
        if is_started():  # otherwise the call had nothing to empty
            journal.span(start, duration, 0, label("empty_cache", frame), journal_format.EMPTY_CACHE)

    if hasattr(module, "empty_cache"):
        timing.time_calls(torch, module.empty_cache, "memory", finish)


def _look_if_started():
    device = devices.current
    if device is not None and device.memory_stats is not None and device.is_initialized():
        _look(device)


_look_guarded = guard.protect("memory", _look_if_started)


def _look(device):
    """Write the counters that have changed; the first time, register the observer."""
    if device not in _watched:
        _watched[:] = [device]
        if device.attach_out_of_memory_observer is not None:
            guard.run("out_of_memory", _observe, device)
    index = device.current_device()
    for metric, value in pick(device.memory_stats(index)):
        if _written.get((index, metric)) != value:
            _written[index, metric] = value
            journal.sample("gpu/%d" % index, metric, float(value))


def pick(statistics):
    """Return (metric, value) for each counter that the allocator's statistics have."""
    found = []
    for metric, path in COUNTERS:
        value = statistics.get(".".join(path), statistics)
        for key in path if value is statistics else ():
            value = value.get(key) if isinstance(value, dict) else None
        if type(value) is int:
            found.append((metric, value))
    return found


def _observe(watched):
    report = guard.protect("out_of_memory", _report_for(watched))

    def observer(device, asked, limit, free):
        report(_getframe().f_back, device, asked, limit, free)

    watched.attach_out_of_memory_observer(observer)


def _report_for(watched):
    def report(frame, device, asked, limit, free):
        _ended[0] += 1
        if _ended[0] > MAX_MARKS:
            return
        counters = dict(pick(watched.memory_stats(device)))
        fields = [device, asked, limit, free, counters.get("allocated_bytes"), counters.get("reserved_bytes")]
        place = source_lines.find_place(frame)
        journal.mark("out_of_memory", "\x1f".join([str(field) for field in fields] + [place]))
        if _ended[1] < MAX_FILES and watched.is_history_enabled and watched.is_history_enabled():
            _ended[1] += 1
            _write(fields, counters, top_blocks(_snapshot(watched), device))

    return report


def _snapshot(watched):
    try:
        return watched.memory_snapshot(None)
    except TypeError:  # versions whose function takes no argument
        return watched.memory_snapshot()


def top_blocks(snapshot, device):
    """Return (bytes, blocks, stack) of a device's live blocks by allocating Python lines, most bytes first.

    A stack is a tuple of (file, line, function), innermost first.
    """
    sums = {}
    for segment in snapshot["segments"]:
        if segment.get("device") != device:
            continue
        for block in segment["blocks"]:
            if block.get("state") == LIVE:
                stack = tuple(
                    [
                        (str(frame["filename"]), int(frame["line"]), str(frame["name"]))
                        for frame in block.get("frames") or ()
                        if str(frame["filename"]).endswith(".py")
                    ]
                )
                total = sums.setdefault(stack, [0, 0])
                total[0] += block["size"]
                total[1] += 1
    found = [(size, count, stack) for stack, (size, count) in sums.items()]
    return sorted(found, key=lambda group: -group[0])[:TOP]


def _write(fields, counters, top):
    import pickle  # nosec B403 # it only writes; torch has loaded it already

    settings = journal.settings
    folder = settings.run_dir + "/" + FOLDER
    os.makedirs(folder, 0o700, exist_ok=True)
    names = ("device", "asked_bytes", "limit_bytes", "free_bytes")
    content = dict(zip(names, fields[: len(names)]))  # noqa: B905 - no strict= in Python 3.8
    content.update(perfwrap=1, counters=counters, top=top)
    path = "%s/%s-%d-%d.pickle" % (folder, settings.host, os.getpid(), _ended[1])
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        pickle.dump(content, file, 4)


def _forget():
    """Forget everything: the child of a fork cannot use its parent's device."""
    _written.clear()
    _ended[:] = [0, 0]
