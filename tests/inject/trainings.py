"""Reads lists of trainings, one a line, carries each out in a child of its own, and counts the steps itself.

Run by test_every_step_counts.py, bare of all knowledge of perfwrap. Each process writes into the folder that it is given
a file with the number of steps that it took of each class of optimizers, and of the batches that it got. With a list as
second argument, that one is carried out in this process itself.
"""

import atexit
import collections
import gc
import json
import multiprocessing
import os
import sys
import threading
import time

AT_EXIT = []
if len(sys.argv) > 2:
    atexit.register(lambda: (carry_out(AT_EXIT), write()))

import torch  # noqa: E402 - after the handler

torch.set_num_threads(1)
FOLDER = sys.argv[1]
STEPS, BATCHES = collections.Counter(), collections.Counter()
LOCK = threading.Lock()
KEPT = []


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        return ONES


ONES = torch.ones(2)


def batches(kind, many):
    """Yield as many batches, from no loader, from new ones for each epoch, or from one that stays."""
    if kind == "none":
        for _ in range(many):
            yield ONES
        return
    loader = None
    while many:
        if loader is None or kind == "new":
            loader = torch.utils.data.DataLoader(Rows(), batch_size=None)
        for batch in loader:
            with LOCK:
                BATCHES["all"] += 1
            yield batch
            many -= 1
            if not many:
                break


def optimizer_of(kind, model):
    if kind == "LBFGS":
        return torch.optim.LBFGS(model.parameters(), lr=1e-9, max_iter=1)
    return getattr(torch.optim, kind)(model.parameters(), lr=1e-9)


def scaler():
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cpu")
    return None


def train(
    kind,
    steps,
    loader="none",
    models=1,
    scaled=False,
    scheduled=False,
    anew=0,
    every=0,
    ms=0,
    backward=True,
    kept=False,
):
    """Take steps: with several models' optimizers in turn, with new optimizers after ``anew`` of them, with a sleep of ``ms``
    in one of ``every`` steps."""
    pairs, scales = [], scaler() if scaled and kind != "LBFGS" else None

    def make():
        pairs.clear()
        for _ in range(models):
            model = torch.nn.Linear(2, 1)
            optimizer = optimizer_of(kind, model)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100) if scheduled else None
            pairs.append((model, optimizer, scheduler))
            if kept:
                KEPT.append(optimizer)

    made = 0
    for number, batch in enumerate(batches(loader, steps)):
        if not pairs or (anew and number - made == anew):
            make()
            made = number
        model, optimizer, scheduler = pairs[number % len(pairs)]

        def closure():
            optimizer.zero_grad()
            loss = model(batch).sum()
            loss.backward()
            return loss

        if kind == "LBFGS":
            optimizer.step(closure)
        elif scales is not None:
            optimizer.zero_grad()
            scales.scale(model(batch).sum()).backward()
            scales.step(optimizer)
            scales.update()
        elif backward:
            closure()
            optimizer.step()
        else:
            optimizer.step()
        with LOCK:
            STEPS[kind] += 1
        if scheduler is not None:
            scheduler.step()
        if every and number % every == every - 1:
            time.sleep(ms / 1000)


def together(one, other):
    """Train in two threads at once."""
    thread = threading.Thread(target=carry_out, args=(other,))
    thread.start()
    carry_out(one)
    thread.join()


def in_threads(trainings):
    """Train in a new thread for each."""
    for each in trainings:
        thread = threading.Thread(target=carry_out, args=([each],))
        thread.start()
        thread.join()


def fork(child):
    """Train in a child, which ends in order."""
    pid = os.fork()
    if pid == 0:
        STEPS.clear()
        BATCHES.clear()
        carry_out(child)
        raise SystemExit
    os.waitpid(pid, 0)


def start(child, method):
    """Train in a process of multiprocessing, which ends without the handlers of atexit if it was forked."""
    process = multiprocessing.get_context(method).Process(target=carry_out_and_write, args=(child,))
    process.start()
    process.join()
    assert process.exitcode == 0


def carry_out_and_write(deeds):
    STEPS.clear()
    BATCHES.clear()
    carry_out(deeds)
    write()


def infer(calls):
    model = torch.nn.Linear(2, 1)
    with torch.no_grad():
        for _ in range(calls):
            model(ONES).sum().item()


def compile_something():
    torch.compile(lambda x: x + 1, backend="eager")(ONES)


def forget():
    KEPT.clear()
    gc.collect()


DEEDS = {
    "train": train,
    "together": together,
    "threads": in_threads,
    "fork": fork,
    "start": start,
    "infer": infer,
    "compile": compile_something,
    "sleep": lambda ms: time.sleep(ms / 1000),
    "forget": forget,
    "at_exit": lambda deeds: AT_EXIT.extend(deeds),
    "import": lambda: __import__("torch._dynamo"),
}


def carry_out(deeds):
    for name, arguments in deeds:
        DEEDS[name](**arguments)


def write():
    path = os.path.join(FOLDER, "%d.json" % os.getpid())
    with open(path + ".part", "w") as file:
        json.dump({"steps": STEPS, "batches": BATCHES["all"]}, file)
    os.rename(path + ".part", path)


def serve():
    """Carry out each line in a child; the child returns."""
    __import__("torch._dynamo")  # as each child would by itself with the newest versions
    print("ready", flush=True)
    while True:
        line = sys.stdin.readline()
        if not line:
            return
        pid = os.fork()
        if pid == 0:
            carry_out(json.loads(line))
            return
        print(os.waitpid(pid, 0)[1], flush=True)


try:
    if len(sys.argv) > 2:
        carry_out(json.loads(sys.argv[2]))
    else:
        serve()
finally:
    write()
