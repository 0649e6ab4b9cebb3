"""DTensors, FSDP and DDP over gloo with one process and two: made, moved, trained, saved."""

import copy
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from moments import check, digest, kind, watch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

CALLS = {
    "to": lambda t: t.to(torch.float64),
    "cpu": lambda t: t.cpu(),
    "to cpu": lambda t: t.to("cpu"),
    "half": lambda t: t.half(),
    "clone": lambda t: t.clone(),
    "copy_": lambda t: t.clone().copy_(t * 2),
    "deepcopy": copy.deepcopy,
    "item": lambda t: t.sum().item(),
    "tolist": lambda t: t.tolist(),
    "bool": lambda t: bool((t > 0).any()),
    "redistribute": lambda t: t.redistribute(placements=[Replicate()]),
    "full": lambda t: t.full_tensor(),
    "matmul": lambda t: t @ t.mT,
    "norm": torch.linalg.vector_norm,
    "equal": lambda t: torch.equal(t, t),
    "nonzero": lambda t: t.nonzero(),
    "numpy": lambda t: t.numpy(),
}


def described(value):
    """Say the class, placements and digest."""
    if isinstance(value, DTensor):
        return f"{kind(value)} {value.placements} {digest(value.to_local())}"
    return digest(value) if isinstance(value, torch.Tensor) else f"{kind(value)} {value}"


def calls():
    """What each call gives, for sharded ones and replicated ones."""
    found = []
    for placement in (Shard(0), Replicate()):
        for name, call in CALLS.items():
            try:
                found.append(
                    f"{name} {described(call(distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [placement])))}"
                )
            except Exception as error:
                found.append(f"{name} {type(error).__name__} {str(error).splitlines()[0][:70]}")
    return "\n    ".join(found)


def learns():
    """Models split each way make three steps."""
    ways = {
        "module": lambda m: distribute_module(m, mesh),
        "fsdp": lambda m: fully_shard(m, mesh=mesh),
        "ddp": DistributedDataParallel,
        "tensor": lambda m: parallelize_module(m, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}),
    }
    found = []
    for name, way in ways.items():
        torch.manual_seed(5)
        model = way(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward() if name != "module" else model(
                distribute_tensor(torch.ones(2, 4), mesh)
            ).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        found.append(f"{name} {type(model).__name__} {[described(p.detach()) for p in model.parameters()]}")
    return "\n    ".join(found)


def work(rank, world, place):
    """Do it in one process."""
    global mesh
    out = sys.stdout if world == 1 else Path(f"rank{rank}.txt").open("w")  # noqa: SIM115
    sys.stdout = out
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    check(calls)
    check(learns)
    watch(2000, 400, counted=False)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout = sys.__stdout__
    if world > 1:
        out.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder, "meeting"))
        if sys.argv[1] == "1":
            work(0, 1, place)
        else:
            mp.spawn(work, (2, place), nprocs=2)
            for rank in range(2):
                print(rank, Path(f"rank{rank}.txt").read_text())
