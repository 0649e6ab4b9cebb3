"""Calls of torch.distributed and wrappers of models are seen, with two processes that really talk."""

from __future__ import annotations

import pytest

BEGIN = """
import torch.distributed as dist
if not dist.is_available(): sys.exit()
store = "file://%s/store-%d" % (sys.argv[1], os.getpid())
child = os.fork()
rank = 0 if child else 1
dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)  # INIT
"""
END = """
dist.barrier()  # BARRIER
dist.destroy_process_group()
if not child: os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture
def two(train):
    """Run a program in two processes; returns what it printed and the journal of the first one."""

    def run(program: str):
        done = train(BEGIN + program + END)
        if not done.journals or "rank" not in done.journals[0].facts:
            pytest.skip("this build of torch has no torch.distributed")
        mine = next(journal for journal in done.journals if journal.facts["rank"] == "0")
        return done, mine

    return run


def test_each_call_of_the_programs_is_a_span_with_its_bytes_and_line(two) -> None:
    done, journal = two("""
x = torch.ones(256)
dist.all_reduce(x)  # REDUCE
dist.broadcast(tensor=x, src=0)
parts = [torch.empty(256) for _ in range(2)]
dist.all_gather(parts, x)
work = dist.all_reduce(x, async_op=True)
work.wait()
print("rank %d has %s\\n" % (dist.get_rank(), x[0].item()), end="", flush=True)
""")
    # In one write each: two processes share the output.
    assert set(done.stdout.split("\n")) == {"rank 0 has 4.0", "rank 1 has 4.0", ""}
    spans = journal.of("COLLECTIVE")
    assert [(span.label, span.value) for span in spans] == [
        ("init_process_group", -1),
        ("all_reduce", 1024),
        ("broadcast", 1024),
        ("all_gather", 2048),
        ("all_reduce async", 1024),
        ("barrier", -1),
    ]
    program = (done.run_dir / "program.py").read_text().splitlines()
    marks = [program[span.line[1] - 1].rpartition("# ")[2] for span in spans]
    assert (marks[0], marks[1], marks[-1]) == ("INIT", "REDUCE", "BARRIER")
    assert spans[0].duration > 0
    facts = {key: journal.facts.get(key) for key in ("rank", "world_size", "distributed_backend")}
    assert facts == {"rank": "0", "world_size": "2", "distributed_backend": "gloo"}


def test_a_call_inside_another_is_part_of_it(two) -> None:
    _, journal = two("""
objects = [None, None]
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": 0}, {"rank": 1}]
""")
    labels = [span.label for span in journal.of("COLLECTIVE")]
    assert labels == ["init_process_group", "all_gather_object", "barrier"]


def test_the_functions_are_the_same_objects_and_dynamo_replaces_them_as_before(train) -> None:
    done = train("""
import importlib, inspect
import torch.distributed as dist
if not dist.is_available(): sys.exit()
from perfwrap_recorder.probes.ranks import collectives
before = dist.all_reduce, dist.all_reduce.__code__, dist.all_reduce.__wrapped__
collectives.install(torch)
print(before == (dist.all_reduce, dist.all_reduce.__code__, dist.all_reduce.__wrapped__))
print(list(inspect.signature(dist.all_reduce).parameters)[:2], "def all_reduce" in inspect.getsource(dist.all_reduce))
import pickle
print(pickle.loads(pickle.dumps(dist.all_reduce)) is dist.all_reduce)
try: dist.all_reduce(torch.ones(1))
except (RuntimeError, ValueError) as error: print("process group" in str(error), error.__context__)
""")
    if done.stdout:
        assert done.stdout.splitlines() == ["True", "['tensor', 'op'] True", "True", "True None"]
    assert not done.journal.of("COLLECTIVE")


def test_ddp_says_how_it_is_set_up_and_where_it_accumulates(two) -> None:
    done, journal = two("""
net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
model = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=3, gradient_as_bucket_view=True)  # DDP
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    if step % 2 == 0:
        with model.no_sync():
            model(torch.ones(2, 4)).sum().backward()  # NO_SYNC
    else:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
print(round(sum(p.sum().item() for p in model.parameters()), 3) is not None)
""")
    facts = {key: value for key, value in journal.facts.items() if key.startswith(("parallel/", "no_sync/"))}
    program = (done.run_dir / "program.py").read_text().splitlines()
    lines = [program[int(facts.pop(key).split("\x1f")[1]) - 1].rpartition("# ")[2]
             for key in ("parallel/1/line", "no_sync/1/line")]  # fmt: skip
    assert lines == ["DDP", "NO_SYNC"]
    assert facts == {
        "parallel/1/kind": "DistributedDataParallel",
        "parallel/1/find_unused_parameters": "False",
        "parallel/1/broadcast_buffers": "True",
        "parallel/1/gradient_as_bucket_view": "True",
        "parallel/1/static_graph": "False",
        "parallel/1/bucket_cap_mb": "3.0",
        "parallel/1/buffers": facts["parallel/1/buffers"],
        "parallel/1/world_size": "2",
        "no_sync/1/kind": "DistributedDataParallel",
    }
    assert int(facts["parallel/1/buffers"]) > 0
    assert {span.label for span in journal.of("FORWARD")} == {"Sequential"}


def test_data_parallel_is_said_at_its_first_call(train) -> None:
    done = train("""
model = nn.DataParallel(nn.Linear(2, 1))
for _ in range(2): model(torch.ones(1, 2))
""")
    assert done.journal.facts["parallel/1/kind"] == "DataParallel"
    assert "parallel/2/kind" not in done.journal.facts


@pytest.mark.parametrize("version", [1, 2])
def test_fsdp_is_said_at_its_first_call(two, version: int) -> None:
    done, journal = two(f"""
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
try:
    if {version} == 1:
        from torch.distributed.fsdp import FullyShardedDataParallel
        model = FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    else:
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.device_mesh import init_device_mesh
        model = fully_shard(net, mesh=init_device_mesh("cpu", (2,)))
    model(torch.ones(2, 4)).sum().backward()
except Exception as error: print("cannot", type(error).__name__, error)
""")
    if "cannot" in done.stdout:
        pytest.skip(f"FSDP does not run on this machine: {done.stdout.splitlines()[0]}")
    kinds = {1: "FullyShardedDataParallel", 2: "fully_shard"}
    assert journal.facts["parallel/1/kind"] == kinds[version]
    if version == 1:
        assert journal.facts["parallel/1/sharding_strategy"] == "FULL_SHARD"
        assert journal.facts["parallel/1/world_size"] == "2"
    own = {"init_process_group", "barrier"}
    assert {span.label for span in journal.of("COLLECTIVE")} == own, "FSDP's own calls are its business"


def test_what_ddp_itself_measures_is_reported(two) -> None:
    done, journal = two("""
from perfwrap_recorder.probes.ranks import parallel
parallel.PACE_NS = 0
journal.OFTEN_INTERVAL_NS = 0
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.norm, self.spare = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(4, 4)
    def forward(self, x):
        return self.norm(self.used(x))
model = nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(24):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
del model
for _ in range(3): optimizer.step()
""")
    facts = journal.facts
    assert int(facts["parallel/1/iteration"]) >= 8
    assert int(facts["parallel/1/exchange_ns"]) > 0
    assert facts["parallel/1/unused_bytes"] == str(4 * (4 * 4 + 4))
    assert facts["parallel/1/buffer_broadcast_calls"] == facts["parallel/1/post_forward_calls"] == "16"
    assert int(facts["parallel/1/buffer_broadcast_ns"]) > 0
    assert int(facts["parallel/1/post_forward_ns"]) > 0


def test_optimizers_may_step_inside_a_communication_hook(two) -> None:
    done, journal = two("""
from perfwrap_recorder.probes.ranks import parallel
parallel.PACE_NS = 0
journal.OFTEN_INTERVAL_NS = 0
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def hook(state, bucket):
    optimizer.step()
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
model.register_comm_hook(None, hook)
for _ in range(12):
    model(torch.ones(4, 8)).sum().backward()
print("went on")
""")
    assert "went on" in done.stdout, "DDP holds its lock here: to ask its logger would wait for ever"
    assert "parallel/1/iteration" in journal.facts
