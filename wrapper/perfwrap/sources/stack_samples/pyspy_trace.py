"""Reads py-spy recordings in the format ``chrometrace``: those of a run, and other ones.

Described by ``src/chrometrace.rs`` of https://github.com/benfred/py-spy; seen: 0.4.

chrometrace is a list of events: a frame begins (``B``) and ends (``E``) at ``ts``, microseconds since py-spy started.
Only changes are written: an unchanged stack was in several samples, about as many as duration times rate. So the
time of a row is that of the first sample with its stack, and its weight is the number of samples in its duration.
py-spy's start is known to some milliseconds: it is between the time just before it was started and the time at which
it wrote the recording, minus the last ``ts``. The coverage contains the remaining error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perfwrap.run_folder import PY_SPY_FIELDS
from perfwrap.sources.damage import UNFORESEEN
from perfwrap.sources.journals.log_lines import LogLines
from perfwrap.sources.stack_samples.frames import Frame, append, columns, make_frame, of_program
from perfwrap.sources.unpacked import whole
from perfwrap.timeline.builder import TimelineBuilder

SOURCE = "py-spy"
USUAL_RATE_HZ = 100.0
LATEST_US = 1 << 50
LATEST_NS, HIGHEST_RATE_HZ, LONGEST_ID = 1 << 62, 1e6, 100
MAX_BYTES = 256 << 20
"""After decompression; an hour needs some megabytes."""
MAX_LOG_BYTES, MAX_LOG_LINES = 16 << 20, 50_000
"""Maximum bytes of all logs of a run together."""
US, MAX_ROW_NS = 1_000, 2_000_000_000
"""Maximum duration of a row; a longer stack becomes several rows."""
MAIN_THREAD = "MainThread"
THREAD = re.compile(r"^thread \((?P<id>[^)]*)\)(?:: (?P<name>.*))?$")


class Recording(Struct, frozen=True):
    """One line ``begin`` of the log, with its ``end`` where there is one."""

    host: str
    file: str
    pid: int
    start_ticks: str
    rate_hz: float
    began_ns: int
    written_ns: int
    said: str


def add_run(
    builder: TimelineBuilder,
    folder: Path,
    to_run: Callable[[str, int], int],
    directory: str,
    shown: Callable[[str], str] = str,
) -> None:
    """Add the recordings of a run; ``to_run`` converts a host's monotonic time to the run's clock.

    ``shown`` returns the name in the run of a host that a file names. ``directory`` is the one in which the command
    was started: old Pythons have relative names of scripts.
    """
    for logged in read_log(folder, LogLines(builder, MAX_LOG_BYTES, MAX_LOG_LINES)):
        recording = replace(logged, host=shown(logged.host))
        try:
            _add_recording(builder, folder, recording, to_run, directory)
        except UNFORESEEN as error:
            builder.warn(f"The py-spy recording {recording.file} cannot be read ({error}); it was skipped.")


def _add_recording(
    builder: TimelineBuilder,
    folder: Path,
    recording: Recording,
    to_run: Callable[[str, int], int],
    directory: str,
) -> None:
    """Add one recording of a run."""
    events = _events(folder / recording.file, builder)
    if events is None:
        if recording.said:
            builder.warn(f"py-spy did not sample process {recording.pid}: {recording.said}.")
        return
    last_ns = max((event["ts"] for event in events), default=0) * US
    start_ns, doubt_ns = _start(recording, last_ns)
    process = builder.process_of(recording.host, recording.pid, recording.start_ticks)
    start, end = (to_run(recording.host, at) for at in (start_ns, start_ns + last_ns))
    _make_absolute(events, directory)
    torn = add_stacks(builder, process, events, recording.rate_hz, start)
    builder.add_row(
        "coverage",
        what=SOURCE,
        track=process,
        start=start,
        end=end,
        lost=torn,
        note=_note(recording, doubt_ns),
        source=SOURCE,
    )


def _note(recording: Recording, doubt_ns: int) -> str:
    """Return the sampling rate, and the accuracy of the times."""
    doubt = (
        f"off by {max(1, round(doubt_ns / 1e6))} ms"
        if recording.written_ns
        else "too early: its end was not recorded"
    )
    return f"at {recording.rate_hz:g} Hz; its times may be {doubt}"


def read_log(folder: Path, lines: LogLines) -> Iterator[Recording]:
    """Return the recordings of all hosts in the order in which they began, each file once."""
    named: set[str] = set()
    for path in sorted(folder.glob("*.log")):
        entries = [
            (words[0], dict(zip(PY_SPY_FIELDS.get(words[0], ()), words[1:], strict=False)))
            for words in (line.split("\t") for line in lines.of(path))
        ]
        ends = {fields.get("file"): fields for event, fields in entries if event == "end"}
        for event, fields in entries:
            if event == "begin" and len(fields) == len(PY_SPY_FIELDS["begin"]):
                recording = _recording(path.stem, fields, ends.get(fields["file"], {}))
                if recording is not None and recording.file not in named:
                    named.add(recording.file)
                    yield recording


def _recording(host: str, begin: dict[str, str], end: dict[str, str]) -> Recording | None:
    """Return the recording that lines of the log describe; None if a line is invalid."""
    try:
        numbers = [int(begin["pid"]), int(begin["began_ns"]), int(end.get("written_ns", 0))]
        rate_hz = float(begin["rate_hz"])
    except ValueError:
        return None
    if not all(0 <= number < LATEST_NS for number in numbers) or not 0 < rate_hz <= HIGHEST_RATE_HZ:
        return None
    file = Path(begin["file"]).name  # never anything outside of this folder
    pid, began_ns, written_ns = numbers
    return Recording(
        host, file, pid, begin["start_ticks"], rate_hz, began_ns, written_ns, end.get("said", "")
    )


def _events(path: Path, builder: TimelineBuilder) -> list[dict[str, Any]] | None:
    """Return the events of a recording, None if there are none; warn if they cannot be read."""
    small = path.with_name(path.name + ".gz")
    try:
        events = json.loads(whole(small if small.exists() else path, MAX_BYTES))
        return [event for event in events if event["ph"] in ("B", "E") and 0 <= event["ts"] < LATEST_US]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        builder.warn(f"The py-spy recording {path.name} cannot be read ({error}); it was skipped.")
        return None


def _make_absolute(events: list[dict[str, Any]], directory: str) -> None:
    """Make relative names of files absolute."""
    for event in events:
        place = event.get("args")
        name = place.get("filename") if isinstance(place, dict) else None
        if isinstance(name, str) and name.endswith(".py") and name[0] not in "/<":
            event["args"] = {**event["args"], "filename": f"{directory}/{name.removeprefix('./')}"}


def _start(recording: Recording, last_ns: int) -> tuple[int, int]:
    """Return when py-spy's clock was 0, and the possible error."""
    latest = recording.written_ns - last_ns if recording.written_ns else recording.began_ns
    slack = max(0, latest - recording.began_ns)
    return recording.began_ns + slack // 2, slack - slack // 2


def add_stacks(
    builder: TimelineBuilder, process: int, events: list[dict[str, Any]], rate_hz: float, start: int
) -> int:
    """Add a row for each stack of each thread; return how many torn stacks were skipped.

    ``start`` is the run's time at which py-spy's clock was 0. A stack is torn if it was read while a generator
    began or ended: then its callers are missing.
    """
    period_ns, torn = 1e9 / rate_hz, 0
    inner_functions = _inner_functions(events)
    rows: dict[str, list[Any]] = {name: [] for name in ("time", "track", "weight", *columns(()))}
    tracks: dict[str, int] = {}
    for frames, begin, end in stack_intervals(events):
        name, inner = frames[0].function, frames[1:]
        if not inner:
            continue
        if _function(inner[0]) in inner_functions:
            torn += 1
            continue
        if name not in tracks:
            tracks[name] = thread_track(builder, process, name)
        for at, weight in _pieces(begin * US, end * US, period_ns):
            append(rows, {"time": start + at, "track": tracks[name], "weight": weight, **_columns(inner)})
    if rows["time"]:
        builder.add("stacks", {**rows, "source": [SOURCE] * len(rows["time"])})
    return torn


def _inner_functions(events: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Return the functions that another function of the same process calls: no complete stack begins with them."""
    return {_function(frame) for frames, _, _ in stack_intervals(events) for frame in frames[2:]}


def _function(frame: Frame) -> tuple[str, str]:
    return frame.function, frame.file


def stack_intervals(events: list[dict[str, Any]]) -> Iterator[tuple[tuple[Frame, ...], int, int]]:
    """Return each stack of the program, from the outermost frame on, with its start and end in microseconds."""
    stacks: dict[object, list[Frame]] = {}
    since: dict[object, int] = {}
    for event in events:
        thread, now = str(event.get("tid"))[:LONGEST_ID], event["ts"]
        stack = stacks.setdefault(thread, [])
        begun = since.setdefault(thread, now)
        if now > begun:
            if stack:
                yield tuple(of_program(stack)), begun, now
            since[thread] = now
        if event["ph"] == "E":
            if stack:
                stack.pop()
        else:
            arguments = event.get("args")
            place = arguments if isinstance(arguments, dict) else {}
            stack.append(make_frame(event.get("name"), place.get("filename"), place.get("line")))


def _pieces(begin_ns: int, end_ns: int, period_ns: float) -> Iterator[tuple[int, int]]:
    """Return times and weights of the rows of a stack; a stack has at least the sample at its beginning."""
    pieces = max(1, (end_ns - begin_ns) // MAX_ROW_NS)
    length = (end_ns - begin_ns) // pieces
    for number in range(pieces):
        yield begin_ns + number * length, max(1, round(length / period_ns))


@lru_cache(maxsize=4096)
def _columns(frames: tuple[Frame, ...]) -> dict[str, Any]:
    return columns(frames)


def thread_track(builder: TimelineBuilder, process: int, name: str) -> int:
    """Return the track of the thread that py-spy's outermost frame names.

    Without stopping the process, py-spy knows the system's id of a thread only from Python 3.11 on. Of older Pythons,
    only the main thread is identified, whose id is the process's; each other thread gets its own track.
    """
    found = THREAD.match(name)
    if found is None:
        return builder.native_thread(process, None, name)
    if re.fullmatch("[0-9]{1,18}", found["id"]):
        return builder.native_thread(process, int(found["id"]), found["name"] or "")
    if found["name"] == MAIN_THREAD:
        return builder.native_thread(process, builder.column(process, "pid"), MAIN_THREAD)
    return builder.native_thread(process, None, found["name"] or found["id"])


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is a py-spy recording in the format ``chrometrace``, by its content."""
    return head.lstrip()[:1] == b"[" and b'"cat":"py-spy"' in head.replace(b" ", b"")


def add(builder: TimelineBuilder, path: Path) -> None:
    """Add a recording that was not made by perfwrap: its times start at 0, on an unknown clock."""
    events = _events(path, builder)
    if not events:
        return
    process = builder.process("py-spy", _pid(events[0].get("pid")), path.name)
    add_stacks(builder, process, events, USUAL_RATE_HZ, 0)
    builder.warn(
        f"{path.name} has neither a start time nor a sampling rate: its times start at 0, and its weights assume "
        f"py-spy's default of {USUAL_RATE_HZ:g} samples per second."
    )


def _pid(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else 0
