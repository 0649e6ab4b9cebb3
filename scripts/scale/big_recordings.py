"""Write recordings of any size, as torch.profiler and nsys write them, to measure how they are read.

    python scripts/scale/big_recordings.py kineto 1e9 trace.json         plain; the suffix .gz compresses it
    python scripts/scale/big_recordings.py nsys 1e9 export.sqlite

A recording repeats one step of a data-parallel transformer on one GPU: batch, copy, 24 layers forward and backward, the
exchange of gradients on a second stream, a fused optimizer, and a read of the loss. The pauses before the steps differ.
The same arguments give the same file.
"""

from __future__ import annotations

import argparse
import gzip
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

US = 1_000
MAIN, ENGINE = 4711, 4790
"""Threads: the program's, which is also the process's number, and that of the backward pass."""
COMPUTE, EXCHANGE = 7, 20
"""Streams."""
LAYERS = 24
PAUSES_US = (200, 4_000)
"""Shortest and longest pause before a step."""
STEP_MARK = "ProfilerStep#"
LAUNCH, COPY, WAIT = "cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize"

GEMM = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
POINTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float>(int, float)"
ATTENTION = (
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4> >(Flash)"
)
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FOREACH = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float> >(int)"
)


@dataclass(frozen=True)
class Host:
    """A function, range or call of a thread; ``link`` is the number of a call, and of what it launched, else 0."""

    category: str
    name: str
    thread: int
    start: int
    end: int
    link: int = 0


@dataclass(frozen=True)
class Gpu:
    """A kernel or copy on a stream; ``size`` is in bytes, 0 for kernels."""

    name: str
    stream: int
    start: int
    end: int
    link: int
    size: int = 0


@dataclass
class Step:
    """The events of one step, in nanoseconds from its start; links are numbered from 1."""

    host: list[Host] = field(default_factory=list)
    gpu: list[Gpu] = field(default_factory=list)
    now: int = 0
    links: int = 0
    thread: int = MAIN
    free: dict[int, int] = field(default_factory=lambda: {COMPUTE: 0, EXCHANGE: 0})

    @contextmanager
    def inside(self, category: str, name: str) -> Iterator[None]:
        """Record a function or range around what is called in it."""
        begin = self.now
        self.now += 2 * US
        yield
        self.now += US
        self.host.append(Host(category, name, self.thread, begin, self.now))

    def op(self, names: str, *kernels: tuple[str, int]) -> None:
        """Call nested functions, of which the innermost launches kernels with their microseconds."""
        name, _, inner = names.partition(" ")
        with self.inside("cpu_op", name):
            if inner:
                self.op(inner, *kernels)
            else:
                for kernel, took in kernels:
                    self.launch(LAUNCH, kernel, took * US, COMPUTE)

    def launch(self, call: str, name: str, took: int, stream: int, size: int = 0) -> None:
        """Call the runtime, and run a kernel or copy when its stream is free."""
        self.links += 1
        self.host.append(Host("cuda_runtime", call, self.thread, self.now, self.now + 5 * US, self.links))
        self.now += 6 * US
        start = max(self.now, self.free[stream] + US)
        self.free[stream] = start + took
        self.gpu.append(Gpu(name, stream, start, start + took, self.links, size))

    def wait(self) -> None:
        """Wait until the GPU has done everything."""
        end = max(self.now + 5 * US, *(free + 3 * US for free in self.free.values()))
        self.links += 1
        self.host.append(Host("cuda_runtime", WAIT, self.thread, self.now, end, self.links))
        self.now = end + US


def make_step() -> Step:
    """Return the step that is repeated."""
    step = Step()
    with step.inside("user_annotation", STEP_MARK):
        _fetch(step)
        with step.inside("user_annotation", "## forward ##"):
            for _ in range(LAYERS):
                _forward(step)
        step.thread = ENGINE
        for layer in range(LAYERS):
            _backward(step)
            if layer % 3 == 2:
                _exchange(step)
        step.thread = MAIN
        with step.inside("user_annotation", "Optimizer.step#AdamW.step"):
            for _ in range(8):
                step.op("aten::_fused_adamw_", (FOREACH, 90))
        with step.inside("cpu_op", "aten::item"), step.inside("cpu_op", "aten::_local_scalar_dense"):
            step.launch(COPY, "Memcpy DtoH (Device -> Pageable)", 2 * US, COMPUTE, 4)
            step.wait()
    step.host.sort(key=lambda event: (event.start, -event.end))
    return step


def _fetch(step: Step) -> None:
    """Wait for the batch and copy it."""
    with step.inside("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
        step.now += 300 * US
    with step.inside("cpu_op", "aten::to"), step.inside("cpu_op", "aten::copy_"):
        step.launch(COPY, "Memcpy HtoD (Pinned -> Device)", 80 * US, COMPUTE, 1 << 20)


def _forward(step: Step) -> None:
    """Run one layer forward."""
    step.op("aten::layer_norm aten::native_layer_norm", (NORM, 12))
    step.op("aten::linear aten::addmm", (GEMM, 60))
    step.op("aten::scaled_dot_product_attention aten::_flash_attention_forward", (ATTENTION, 45))
    step.op("aten::linear aten::addmm", (GEMM, 30))
    step.op("aten::dropout aten::native_dropout", (POINTWISE, 9))
    step.op("aten::add", (POINTWISE, 8))
    step.op("aten::linear aten::addmm", (GEMM, 90))
    step.op("aten::gelu", (POINTWISE, 14))
    step.op("aten::linear aten::addmm", (GEMM, 90))


def _backward(step: Step) -> None:
    """Run one layer backward."""
    for name, kernels in (
        ("AddmmBackward0", ((GEMM, 90), (GEMM, 90))),
        ("GeluBackward0", ((POINTWISE, 16),)),
        ("AddmmBackward0", ((GEMM, 90), (GEMM, 90))),
        ("NativeLayerNormBackward0", ((NORM, 20), (NORM, 8))),
        ("FlashAttentionBackward0", ((ATTENTION, 110),)),
        ("AddmmBackward0", ((GEMM, 60), (GEMM, 60))),
    ):
        engine = f"autograd::engine::evaluate_function: {name}"
        with step.inside("cpu_op", engine), step.inside("cpu_op", name):
            for kernel in kernels:
                step.op("aten::mm", kernel)


def _exchange(step: Step) -> None:
    """Sum a bucket of gradients on the second stream, after the work that makes them."""
    step.free[EXCHANGE] = max(step.free[EXCHANGE], step.free[COMPUTE])
    with step.inside("cpu_op", "record_param_comms"), step.inside("user_annotation", "nccl:all_reduce"):
        step.launch("cudaLaunchKernelExC", REDUCE, 700 * US, EXCHANGE)


def begins(step: Step) -> Iterator[int]:
    """Yield when the steps start, in nanoseconds."""
    chance = random.Random(0)
    length = max(step.now, *step.free.values())
    at = 1_000_000 * US
    while True:
        yield at
        at += length + chance.randrange(*PAUSES_US) * US


def write_kineto(path: Path, size: int) -> int:
    """Write a trace of torch.profiler of about ``size`` bytes before compression; return the number of its steps."""
    step = make_step()
    groups = [
        _template(step.host, _host_text),
        _template(step.gpu, _gpu_text),
        _template([event for event in step.host if event.link and event.name != WAIT], _flow_start),
        _template(step.gpu, _flow_end),
    ]
    bytes_of_step = sum(len(text) for text, _ in groups)
    steps = max(1, round(size / bytes_of_step))
    starts = [start for start, _ in zip(begins(step), range(steps), strict=False)]
    open_file: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    options = {"compresslevel": 1} if path.suffix == ".gz" else {}
    with open_file(path, "wt", encoding="utf-8", **options) as file:
        _write_header(file)
        for text, values in groups:
            for number, start in enumerate(starts):
                file.write(text % _values(values, start, number, step))
        file.write(",\n".join(_marks(step, starts)) + '\n  ], "traceName": "made by big_recordings.py"\n}\n')
    return steps


def _write_header(file: IO[str]) -> None:
    """Write what is before the events."""
    file.write(
        '{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {"id": 0, "name": "NVIDIA A100-SXM4-80GB", '
        '"totalGlobalMem": 85899345920, "computeMajor": 8, "computeMinor": 0, "numSms": 108}\n  ],\n'
        '  "record_shapes": 0, "baseTimeNanoseconds": 1700000000000000000,\n  "traceEvents": [\n'
        f'  {{"name": "process_name", "ph": "M", "ts": 0.0, "pid": {MAIN}, "tid": 0, "args": {{"name": "python"}}}},\n'
    )


def _template(events: list[Any], text: Callable[[Any], str]) -> tuple[str, Integers]:
    """Return the text of a step's events with places for time and link, and these values, one row per event."""
    chosen = [event for event in events if event.name != STEP_MARK]
    return "".join(map(text, chosen)), np.array(
        [(event.start, event.link) for event in chosen], dtype=np.int64
    )


def _values(rows: Integers, start: int, number: int, step: Step) -> tuple[int, ...]:
    """Return the values for the places of a template: microseconds, their thousandths, and the link."""
    moments = rows[:, 0] + start
    links = np.where(rows[:, 1] > 0, rows[:, 1] + number * step.links, 0)
    return tuple(np.stack([moments // US, moments % US, links], axis=1).ravel().tolist())


def _host_text(event: Host) -> str:
    """Return a function, range or call as Kineto writes it, with places for time and link."""
    about = (
        '"External id": 1, "cbid": 211, "correlation": %d'
        if event.category == "cuda_runtime"
        else '"External id": 1, "Record function id": 0, "Ev Idx": %d'
    )
    return _event_text(event.category, event, MAIN, event.thread, about)


def _gpu_text(event: Gpu) -> str:
    """Return a kernel or copy as Kineto writes it, with places for time and link."""
    place = f'"External id": 1, "device": 0, "context": 1, "stream": {event.stream}, "correlation": %d'
    if event.size:
        category, about = "gpu_memcpy", f'{place}, "bytes": {event.size}, "memory bandwidth (GB/s)": 12.5'
    else:
        category = "kernel"
        about = (
            f'"queued": 0, {place},\n      "registers per thread": 128, "shared memory": 49152, '
            '"blocks per SM": 3.55, "warps per SM": 28.4,\n      "grid": [128, 3, 1], "block": [256, 1, 1], '
            '"est. achieved occupancy %%": 44'
        )
    return _event_text(category, event, 0, event.stream, about)


def _event_text(category: str, event: Host | Gpu, pid: int, tid: int, about: str) -> str:
    """Return an event as Kineto writes it, with places for time and link."""
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{event.name}", "pid": {pid}, "tid": {tid},\n'
        f'    "ts": %d.%03d, "dur": {(event.end - event.start) / US:.3f},\n'
        f'    "args": {{\n      {about}\n    }}\n  }},\n'
    )


def _flow_start(event: Host) -> str:
    """Return the beginning of the arrow from a call to its kernel."""
    return (
        f'  {{\n    "ph": "s", "pid": {MAIN}, "tid": {event.thread}, "ts": %d.%03d, "id": %d,\n'
        '    "cat": "ac2g", "name": "ac2g"\n  },\n'
    )


def _flow_end(event: Gpu) -> str:
    """Return the end of the arrow from a call to its kernel."""
    return (
        f'  {{\n    "ph": "f", "pid": 0, "tid": {event.stream}, "ts": %d.%03d, "id": %d,\n'
        '    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  },\n'
    )


def _marks(step: Step, starts: list[int]) -> Iterator[str]:
    """Yield the marks of the steps."""
    (mark,) = [event for event in step.host if event.name == STEP_MARK]
    for number, start in enumerate(starts):
        at = start + mark.start
        yield (
            f'  {{"ph": "X", "cat": "user_annotation", "name": "{STEP_MARK}{number}", "pid": {MAIN}, "tid": {MAIN}, '
            f'"ts": {at // US}.{at % US:03d}, "dur": {(mark.end - mark.start) / US:.3f}, "args": {{}}}}'
        )


KERNELS, COPIES, CALLS, RANGES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
)
TABLES = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_GPU": "id INTEGER, name TEXT, busLocation TEXT, totalMemory INTEGER, smCount INTEGER,"
    " cuDevice INTEGER, computeMajor INTEGER, computeMinor INTEGER",
    "ENUM_NSYS_EVENT_TYPE": "id INTEGER PRIMARY KEY, name TEXT, label TEXT",
    "ENUM_CUDA_MEMCPY_OPER": "id INTEGER PRIMARY KEY, name TEXT, label TEXT",
    KERNELS: "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, greenContextId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER,"
    " mangledName INTEGER, launchType INTEGER, registersPerThread INTEGER, gridX INTEGER, gridY INTEGER,"
    " gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER,"
    " dynamicSharedMemory INTEGER, gridId INTEGER",
    COPIES: "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER,"
    " globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER",
    CALLS: "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER,"
    " nameId INTEGER, returnValue INTEGER, callchainId INTEGER",
    RANGES: "start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER, color INTEGER,"
    " text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER",
}
"""The tables of an export of nsys 2024, with the columns that take most of the space."""
RANGE = 59
TO_GPU, FROM_GPU = 1, 2
STEPS_AT_ONCE = 50


def write_nsys(path: Path, size: int) -> int:
    """Write an export of nsys of about ``size`` bytes; return the number of its steps.

    Its ranges are those of torch.autograd.profiler.emit_nvtx.
    """
    step = make_step()
    path.unlink(missing_ok=True)
    made = sqlite3.connect(path)
    made.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
    for table, columns in TABLES.items():
        made.execute(f"CREATE TABLE {table} ({columns})")
    _write_facts(made, step)
    names = {name: number for number, name in made.execute("SELECT id, value FROM StringIds")}
    steps = 0
    for start in begins(step):
        for table, rows in _rows(step, names, start, steps).items():
            places = ", ".join("?" * len(rows[0]))
            made.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608 # names of this file
        steps += 1
        if steps % STEPS_AT_ONCE == 0:
            made.commit()
            if path.stat().st_size >= size:
                break
    made.commit()
    made.close()
    return steps


def _write_facts(made: sqlite3.Connection, step: Step) -> None:
    """Write names, enumerations and the machine."""
    names = dict.fromkeys([*(event.name for event in step.gpu), *(event.name for event in step.host)])
    made.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names, start=1))
    made.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.13.2')")
    made.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '', '')")
    made.execute(
        "INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA A100-SXM4-80GB', '0000:07:00.0', 85899345920, 108, 0, 8, 0)"
    )
    made.execute(f"INSERT INTO ENUM_NSYS_EVENT_TYPE VALUES ({RANGE}, 'NvtxPushPopRange', '')")
    for number, name in ((TO_GPU, "HTOD"), (FROM_GPU, "DTOH")):
        made.execute(f"INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES ({number}, 'CUDA_MEMCPY_KIND_{name}', '')")  # noqa: S608


def _rows(step: Step, names: dict[str, int], start: int, number: int) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of one step by table."""
    process = MAIN << 24
    first = number * step.links
    rows: dict[str, list[tuple[Any, ...]]] = {KERNELS: [], COPIES: [], CALLS: [], RANGES: []}
    for event in step.gpu:
        begin, end, link, name = event.start + start, event.end + start, event.link + first, names[event.name]
        if event.size:
            kind = TO_GPU if "HtoD" in event.name else FROM_GPU
            rows[COPIES].append((begin, end, 0, 1, event.stream, link, process, event.size, kind, 1, 2))
        else:
            rows[KERNELS].append(
                (begin, end, 0, 1, None, event.stream, link, process, name, name, name)
                + (1, 128, 128, 3, 1, 256, 1, 1, 0, 49152, link)
            )
    for call in step.host:
        begin, end, thread = call.start + start, call.end + start, process | call.thread
        if call.category == "cuda_runtime":
            rows[CALLS].append((begin, end, 0, thread, call.link + first, names[call.name], 0, None))
        else:
            text = f"step {number}" if call.name == STEP_MARK else call.name
            rows[RANGES].append((begin, end, RANGE, None, None, None, text, thread, None, None, 0))
    return rows


def main() -> None:
    """Write one recording."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("format", choices=("kineto", "nsys"))
    parser.add_argument("size", type=float, metavar="BYTES")
    parser.add_argument("path", type=Path)
    options = parser.parse_args()
    write = write_kineto if options.format == "kineto" else write_nsys
    steps = write(options.path, int(options.size))
    print(f"{options.path}: {options.path.stat().st_size / 1e6:.1f} MB, {steps} steps")


if __name__ == "__main__":
    main()
