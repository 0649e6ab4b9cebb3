"""Two processes that train one shared model, without ranks; the parent only tests it afterwards."""

import torch
from torch import multiprocessing, nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 24


def train(model, seed):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    loader = DataLoader(
        TensorDataset(torch.randn(STEPS * 4, 8), torch.randint(0, 2, (STEPS * 4,))), batch_size=4
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


if __name__ == "__main__":
    model = nn.Linear(8, 2)
    model.share_memory()
    processes = [multiprocessing.Process(target=train, args=(model, seed)) for seed in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    with torch.no_grad():
        model(torch.randn(8, 8)).argmax(1).tolist()
    print("trainers", len(processes))
    print("steps", STEPS)
