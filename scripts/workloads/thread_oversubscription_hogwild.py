# expect: thread_oversubscription
# also: slow_steps python_overhead
"""Trains one model in several processes at once (hogwild), each with as many threads as there are cores."""
import os

import torch
import torch.multiprocessing as mp
from torch import nn

CORES = len(os.sched_getaffinity(0))


def train(rank, model):
    torch.manual_seed(rank)
    torch.set_num_threads(2 * CORES)
    # fixed: torch.set_num_threads(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data, labels = torch.randn(1024, 256), torch.randint(0, 10, (1024,))
    for step in range(60):
        start = step * 128 % 1024
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data[start : start + 128]), labels[start : start + 128])
        loss.backward()
        optimizer.step()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 10))
    model.share_memory()
    processes = [mp.get_context("spawn").Process(target=train, args=(rank, model)) for rank in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print("done", all(process.exitcode == 0 for process in processes))


if __name__ == "__main__":
    main()
