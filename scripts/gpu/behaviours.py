"""The program that scripts/gpu_check.py runs bare and recorded, to check that it behaves the same on a GPU.

It has no reference to perfwrap. It uses what a recorder could disturb (CUDA graphs, compiled steps, streams, the
allocator, forked and spawned workers, the program's own profiler, errors) and prints what a program can observe, which
must be equal from run to run: values, counters, types of errors. ``behaviours.py NAME...`` runs only these parts.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE = os.environ.get("GPU_CHECK_DEVICE", "cuda")
STEPS = 60
ROWS, WIDTH = 64, 256


def digest(*tensors: torch.Tensor) -> str:
    """Return a hash of the tensors' bits."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def make_net() -> nn.Module:
    """Return a small network on the GPU."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.1), nn.Linear(WIDTH, 10)).to(DEVICE)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int = STEPS) -> list[float]:
    """Run ordinary steps and return every tenth loss."""
    losses = []
    for step in range(steps):
        x = torch.randn(ROWS, WIDTH, device=DEVICE)
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            losses.append(round(loss.item(), 6))
    return losses


def fork_before_cuda() -> None:
    """Start CUDA in a forked child before the parent has: works only if nothing else has started it."""
    print("started", torch.cuda.is_initialized())
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = f"{torch.ones(3, device='cuda').sum().item()}"
        except RuntimeError as error:
            text = type(error).__name__
        os.write(writer, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
    print("in the child", os.read(reader, 100).decode(), "started", torch.cuda.is_initialized())


def ordinary() -> None:
    """Train, and print the weights, the random state and all counters of the allocator."""
    net = make_net()
    print(train(net, torch.optim.AdamW(net.parameters(), lr=1e-3), 400))
    print(digest(*net.parameters()), digest(torch.cuda.get_rng_state()), digest(torch.get_rng_state()))
    counters = torch.cuda.memory_stats()
    print({key: counters[key] for key in sorted(counters) if "bytes" in key or "alloc" in key})
    print(len(torch.cuda.memory_snapshot()), "segments")


def whole_step_graph() -> None:
    """Capture a whole training step as one CUDA graph, and replay it between ordinary steps."""
    net = make_net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, capturable=True)
    x = torch.randn(ROWS, WIDTH, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            net(x).square().mean().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
    for step in range(STEPS):
        x.copy_(torch.randn(ROWS, WIDTH, device="cuda"))
        graph.replay()
        if step % 20 == 0:
            print(f"{loss.item():.6f}")
    print(digest(*net.parameters()))


def graphed_callables() -> None:
    """Train a network that make_graphed_callables has captured."""
    net = make_net()
    graphed = torch.cuda.make_graphed_callables(net, (torch.randn(ROWS, WIDTH, device="cuda"),))
    print(train(graphed, torch.optim.SGD(net.parameters(), lr=1e-2)), digest(*net.parameters()))


def capture_beside_a_thread() -> None:
    """Capture in the strict mode while another thread trains: an unsafe call of any thread would break it."""
    net, other = make_net(), make_net()
    x = torch.randn(ROWS, WIDTH, device="cuda")
    net(x)
    done, started = threading.Event(), threading.Event()

    def work() -> None:
        optimizer = torch.optim.SGD(other.parameters(), lr=1e-3)
        y = torch.randn(ROWS, WIDTH, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            while not done.is_set():
                try:
                    optimizer.zero_grad()
                    other(y).square().mean().backward()
                    optimizer.step()
                except RuntimeError:  # of its own memory, depending on the moment
                    return
                finally:
                    started.set()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.no_grad(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            output = net(x)
        graph.replay()
        print("captured", tuple(output.shape))
    except RuntimeError as error:
        print(type(error).__name__)
    done.set()
    thread.join()


def compiled() -> None:
    """Train with torch.compile, with and without CUDA graphs, and a compiled optimizer; print what Dynamo counted."""
    for mode in ("default", "reduce-overhead"):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        net = make_net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        compiled_net = torch.compile(net, mode=mode)
        print(mode, train(compiled_net, optimizer), digest(*net.parameters()))
        counted = torch._dynamo.utils.counters
        print(
            {
                key: dict(counted[key])
                for key in ("stats", "graph_break", "frames", "inductor")
                if key in counted
            }
        )


def scaled() -> None:
    """Train in fp16 with a GradScaler, with a step whose gradients overflow."""
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**16, growth_interval=20)
    for step in range(STEPS):
        x = torch.randn(ROWS, WIDTH, device="cuda") * (1e30 if step == 30 else 1)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = net(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            print(f"{loss.item():.5f} {norm.item():.5f} {scaler.get_scale()}")
    print(digest(*net.parameters()))


def no_synchronisation() -> None:
    """Train while torch raises an error for each synchronisation, then count its warnings for known ones."""
    net = make_net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    train(net, optimizer, 1)
    torch.cuda.set_sync_debug_mode("error")
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = net(torch.randn(ROWS, WIDTH, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss.item()
        loss.cpu()
        loss.nonzero()
        bool(loss > 0)
        loss.to("cpu", non_blocking=False)
    torch.cuda.set_sync_debug_mode("default")
    print([(Path(warning.filename).name, warning.lineno) for warning in caught])


class Items(Dataset):
    """Items that tell whether a worker may use CUDA."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, bool]:
        return torch.full((16,), float(index)), torch.cuda._is_in_bad_fork()


def workers() -> None:
    """Read batches from forked and spawned workers after CUDA has started, pinned and not."""
    torch.cuda.init()
    for context, pinned in (("fork", False), ("fork", True), ("spawn", True)):
        loader = DataLoader(Items(), 8, num_workers=2, multiprocessing_context=context, pin_memory=pinned)
        found = [(x.cuda(non_blocking=True).sum().item(), x.is_pinned(), bad[0].item()) for x, bad in loader]
        print(context, found[:2], len(found))


def streams_and_events() -> None:
    """Prefetch on a stream of the program's own, with its own events."""
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    side = torch.cuda.Stream(priority=-1)
    batches = [torch.randn(ROWS, WIDTH).pin_memory() for _ in range(20)]
    with torch.cuda.stream(side):
        ready = batches[0].cuda(non_blocking=True)
    for batch in [*batches[1:], batches[0]]:
        torch.cuda.current_stream().wait_stream(side)
        x = ready
        x.record_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            ready = batch.cuda(non_blocking=True)
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    net(x)
    last.record()
    last.synchronize()
    print(
        first.elapsed_time(last) > 0, last.query(), torch.cuda.current_stream() == torch.cuda.default_stream()
    )
    print(digest(*net.parameters()))


def out_of_memory() -> None:
    """Run out of memory, catch it, and train on."""
    net = make_net()
    try:
        torch.empty(1 << 42, device="cuda", dtype=torch.uint8)
    except torch.OutOfMemoryError as error:
        frames = traceback.extract_tb(error.__traceback__)
        print(type(error).__name__, str(error)[:60], [frame.name for frame in frames])
    print(torch.cuda.memory_stats()["num_ooms"], train(net, torch.optim.SGD(net.parameters(), lr=1e-2)))


def own_profiler() -> None:
    """Use the program's own profiler: the same kernels and ranges, the same number of waits."""
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    net = make_net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    train(net, optimizer, 5)
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=2, warmup=2, active=4),
    ) as profiler:
        for _ in range(8):
            with record_function("own range"):
                train(net, optimizer, 1)
            profiler.step()
    averages = {event.key: event for event in profiler.key_averages()}
    print(averages["own range"].count, averages["aten::addmm"].count)
    print(sum(event.count for event in averages.values() if "Synchronize" in event.key))
    print(sum(event.count for event in averages.values() if event.key == "cudaLaunchKernel"))


def own_memory_history() -> None:
    """Record the allocator's history: the same number of entries, the same stacks' lengths."""
    torch.cuda.memory._record_memory_history(max_entries=10_000, stacks="python")
    net = make_net()
    train(net, torch.optim.SGD(net.parameters(), lr=1e-2), 20)
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    trace = snapshot["device_traces"][0]
    print(len(trace), sum(entry["action"] == "alloc" for entry in trace))


def one_rank() -> None:
    """Train one rank of DDP over NCCL."""
    import torch.distributed as dist

    with tempfile.NamedTemporaryFile() as file:
        dist.init_process_group("nccl", init_method=f"file://{file.name}-store", rank=0, world_size=1)
        net = nn.parallel.DistributedDataParallel(make_net(), device_ids=[0])
        print(train(net, torch.optim.SGD(net.parameters(), lr=1e-2)), digest(*net.parameters()))
        gathered = [torch.empty(4, device="cuda")]
        dist.all_gather(gathered, torch.arange(4.0, device="cuda"))
        print(gathered[0].tolist())
        dist.destroy_process_group()


def values() -> None:
    """Read values in every way, and copy, save, load and pickle tensors of the GPU."""
    x = torch.arange(6.0, device=DEVICE).reshape(2, 3)
    print(x.tolist(), x.cpu().numpy().sum(), float(x[0, 1]), int(x[1, 2]), bool(x[0, 1] > 0))
    print(f"{x[1, 1]:.1f}", x, x.to("cpu", torch.float64).dtype, x.nonzero().shape)
    print(torch.equal(x, x.clone()), x.unique().numel())
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"x": x, "net": make_net().state_dict()}, f"{folder}/file")
        loaded = torch.load(f"{folder}/file", map_location=DEVICE)
        print(digest(loaded["x"]), loaded["x"].device, len(loaded["net"]))
    print(digest(copy.deepcopy(x)), x.pin_memory().is_pinned() if x.is_cpu else "on the GPU")


def error_in_a_kernel() -> None:
    """Fail in a kernel, in a process of its own: the same error in the same place, the same exit code."""
    lines = (
        "import torch",
        "x = torch.zeros(4, device='cuda')",
        "x[torch.tensor([9], device='cuda')]",
        "torch.cuda.synchronize()",
    )
    text = "\n".join(lines)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    print(
        done.returncode,
        [line for line in done.stderr.splitlines() if "Error" in line and "assert" in line][:1],
    )


def _in_spawned(queue: Any) -> None:
    net = make_net()
    queue.put((train(net, torch.optim.SGD(net.parameters(), lr=1e-2)), digest(*net.parameters())))


def spawned_trainer() -> None:
    """Train in a spawned process, and share a tensor of the GPU with it."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_in_spawned, args=(queue,))
    process.start()
    print(queue.get())
    process.join()
    print(process.exitcode)


PARTS = (
    fork_before_cuda,
    ordinary,
    whole_step_graph,
    graphed_callables,
    capture_beside_a_thread,
    compiled,
    scaled,
    no_synchronisation,
    workers,
    streams_and_events,
    out_of_memory,
    own_profiler,
    own_memory_history,
    one_rank,
    values,
    error_in_a_kernel,
    spawned_trainer,
)


def main() -> None:
    """Run the parts one after the other."""
    torch.use_deterministic_algorithms(True)
    for part in PARTS:
        if sys.argv[1:] and part.__name__ not in sys.argv[1:]:
            continue
        print(f"== {part.__name__}", flush=True)
        try:
            part()
        except Exception as error:  # noqa: BLE001 - an error of a part is something to compare, too
            print(type(error).__name__, str(error).partition("\n")[0][:200], flush=True)
        gc.collect()
        getattr(torch, DEVICE).empty_cache()


if __name__ == "__main__":
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    main()
