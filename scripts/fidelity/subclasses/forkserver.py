"""Processes of a fork server, spawned and forked ones that train, send tensors and functions, and raise."""

import copy
import sys

import torch
import torch.multiprocessing as mp
from moments import digest, train


def work(rank, inbox, outbox):
    """Train in a child, and answer with tensors, functions and what they are."""
    torch.set_num_threads(1)
    method, tensor = inbox.get()
    answer = method(tensor, torch.float64)
    weights = train(600 + rank)
    outbox.put(
        (
            rank,
            weights,
            answer,
            method is torch.Tensor.to,
            copy.deepcopy(torch.Tensor.copy_) is torch.Tensor.copy_,
        )
    )
    inbox.get()


def raising(rank):
    """Raise in a child."""
    raise ValueError(f"child {rank} had enough")


def main(kind):
    """Do it with children of one kind, before and after steps of its own."""
    context = mp.get_context(kind)
    for moment in ("before", "after"):
        queues = [(context.Queue(), context.Queue()) for _ in range(2)]
        children = [context.Process(target=work, args=(rank, *pair)) for rank, pair in enumerate(queues)]
        for child, (inbox, outbox) in zip(children, queues, strict=True):
            child.start()
            inbox.put((torch.Tensor.to, torch.arange(3.0)))
            rank, weights, answer, *same = outbox.get()
            print(kind, moment, rank, weights, digest(answer), same, flush=True)
            inbox.put("end")
            child.join()
            print("exit", child.exitcode, flush=True)
        if moment == "before":
            print(train(3000), flush=True)
    try:
        mp.start_processes(raising, nprocs=1, start_method=kind)
    except mp.ProcessRaisedException as error:
        print(str(error).strip().splitlines()[-1])
    print("steps made:", 3000)


if __name__ == "__main__":
    main(sys.argv[1])
