"""Workers say what they wait for, how they start, and how far they are ahead."""

from __future__ import annotations

import importlib.util

import pytest

DATA = """
class Data(torch.utils.data.Dataset):
    def __init__(self, size=12): self.size = size
    def __len__(self): return self.size
    def __getitem__(self, index): return torch.full((5,), float(index))
DataLoader = torch.utils.data.DataLoader
"""


def workers_of(done) -> list:
    """Return the journals of workers."""
    return [journal for journal in done.journals if journal.facts.get("role") == "worker"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_every_kind_record_their_start_their_waits_and_their_batches(
    train, method: str, persistent: bool
) -> None:
    done = train(f"""{DATA}
if __name__ == "__main__":
    loader = DataLoader(
        Data(), 2, num_workers=2, multiprocessing_context={method!r}, persistent_workers={persistent}
    )
    for epoch in range(2):
        for batch in loader: pass
    del loader
    let_feeders_end()
""")
    workers = workers_of(done)
    assert len(workers) == (2 if persistent else 4)
    assert sorted({worker.facts["worker_id"] for worker in workers}) == ["0", "1"]
    assert sum(span.value for worker in workers for span in worker.of("FETCH")) == 24
    for worker in workers:
        fetches, waits = worker.of("FETCH"), worker.of("IDLE")
        (start,) = worker.of("LOADER_START")
        assert len(fetches) == (6 if persistent else 3)
        assert len(waits) > len(fetches)
        assert start.start + start.duration <= waits[0].start < fetches[0].start
        busy = sorted((span.start, span.start + span.duration) for span in [start, *waits, *fetches])
        assert all(one[1] <= other[0] for one, other in zip(busy, busy[1:], strict=False))
    main = next(journal for journal in done.journals if journal.of("DATA"))
    reported = {
        int(pid)
        for record in main.of("FACT")
        if record.name == "loader/1/workers"
        for pid in main.texts[record.value].split()
    }
    assert reported == {worker.header[2] for worker in workers}


def test_very_fast_batches_are_all_counted_while_detail_is_paused(train) -> None:
    done = train(f"""{DATA}
class Fast(Data):
    def __getitem__(self, index): return index
for batch in DataLoader(Fast(4_000), None, num_workers=1): pass
""")
    (worker,) = workers_of(done)
    counts = {}
    for (kind, _), (count, _) in worker.totals().items():
        counts[kind] = counts.get(kind, 0) + count
    assert counts["FETCH"] == 4_000
    assert counts["GETITEM"] == counts["COLLATE"] < 2_000


def test_the_queue_shows_how_many_batches_were_ready(train) -> None:
    done = train(f"""{DATA}
import time
loader = DataLoader(Data(), 2, num_workers=2, prefetch_factor=2)
iterator = iter(loader)
deadline = time.monotonic() + 200
while iterator._worker_result_queue.qsize() < 4 and time.monotonic() < deadline: pass
batches = list(iterator)
""")
    main = next(journal for journal in done.journals if journal.of("DATA"))
    looks, waits = main.of("QUEUE"), main.of("DATA")
    assert [look.start for look in looks] == [wait.start for wait in waits]
    assert {look.name for look in looks} == {"loader/1"}
    assert int(ready(looks[0])) == 4  # and a half where a later one came first


def test_a_batch_that_was_overtaken_by_later_ones_is_marked(train, tmp_path) -> None:
    done = train(f"""{DATA}
import os, time
go, deadline = {str(tmp_path / "go")!r}, time.monotonic() + 200
class Held(Data):
    def __getitem__(self, index):
        while index == 0 and not os.path.exists(go) and time.monotonic() < deadline: pass
        return index
iterator = iter(DataLoader(Held(4), 1, num_workers=2, prefetch_factor=2))
queue = iterator._worker_result_queue
while not (queue.qsize() == 2 and queue._reader.poll()) and time.monotonic() < deadline: pass
open(go, "w").close()
print([int(batch) for batch in iterator])
""")
    assert done.stdout == "[0, 1, 2, 3]\n"
    main = next(journal for journal in done.journals if journal.of("DATA"))
    first, second, *_ = main.of("QUEUE")
    assert ready(first) % 1 == 0.5
    assert ready(first) >= 2
    assert ready(second) % 1 == 0.0


def test_the_pinning_thread_is_timed_from_taking_a_batch_to_passing_it_on(train) -> None:
    """Without a GPU torch starts no such thread: its loop is stood in for by one of the same calls."""
    done = train("""
import queue, threading
from perfwrap_recorder.program import batches
from perfwrap_recorder.probes.data_loading import loader_workers
from torch._utils import ExceptionWrapper
def loop(in_queue, out_queue, device_id, done_event, device):
    while True:
        try:
            number, data = in_queue.get(timeout=60)
        except queue.Empty:
            return
        if data is None: return
        out_queue.put((number, data), timeout=5)
begin = loader_workers._begin_pinning_with(batches.weigh_for(torch))
def wrapper(in_queue, out_queue, *more): loop(*begin(in_queue, out_queue), *more)
unpinned, pinned = queue.Queue(), queue.Queue()
try:
    raise KeyError("torn")
except KeyError:
    torn = ExceptionWrapper()
for item in ((0, torch.zeros(4)), (1, torn), (2, {"x": torch.zeros(2), "n": 1}), (3, None)): unpinned.put(item)
thread = threading.Thread(target=wrapper, args=(unpinned, pinned, 0, threading.Event(), None))
thread.start(); thread.join()
print([pinned.get()[0] for _ in range(3)], sorted(vars(unpinned)) == sorted(vars(queue.Queue())))
""")
    assert done.stdout == "[0, 1, 2] True\n"
    spans = done.journal.of("PIN")
    assert [span.value for span in spans] == [16, 8]
    assert {span.thread for span in spans} != {record.thread for record in done.journal.of("COVERAGE")}


@pytest.mark.skipif(importlib.util.find_spec("torchdata") is None, reason="torchdata is not installed here")
@pytest.mark.parametrize("workers", [0, 2])
def test_torchdatas_loader_is_seen_like_torchs(train, workers: int) -> None:
    done = train(f"""{DATA}
import warnings
warnings.simplefilter("ignore")  # torchdata calls what torch has come to deprecate
from torchdata.stateful_dataloader import StatefulDataLoader
from perfwrap_recorder import on_import
from perfwrap_recorder.probes.data_loading import data_loader, loader_workers
for probe in (data_loader, loader_workers):
    for name, function in probe.MODULES.items(): on_import.after(name, function)
loader = StatefulDataLoader(Data(), 2, num_workers={workers})
for epoch in range(2):
    for batch in loader: pass
print(sorted(loader.state_dict())[:2])
""")
    main = next(journal for journal in done.journals if journal.of("DATA"))
    assert {span.label for span in main.of("DATA")} == {"loader/1"}
    assert len(main.of("LOADER_START")) == 2
    assert sum(span.value for journal in done.journals for span in journal.of("FETCH")) == 24
    assert len(workers_of(done)) == 2 * workers
    assert len(main.of("QUEUE")) == (12 if workers else 0)
    for worker in workers_of(done):
        assert worker.of("IDLE")
        assert len(worker.of("LOADER_START")) == 1


def ready(record) -> float:
    """Return the value of an instant."""
    import struct

    return struct.unpack("<d", struct.pack("<q", record.value))[0]
