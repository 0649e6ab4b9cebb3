"""Trainings of which the number of steps is known: several after each other, two optimizers, new optimizers, and more.

python step_counts.py several|longer|gan|critics|anew|same_model|accumulate|evaluate|loaders
"""

import sys

import torch
from moments import digest, train
from torch import nn


def model_and(make=torch.optim.SGD):
    """Return a tiny model and its optimizer."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, make(model.parameters(), lr=0.01)


def step(model, optimizer, scale=1.0):
    """Make one step."""
    optimizer.zero_grad()
    (model(torch.ones(4, 8)).square().mean() * scale).backward()
    optimizer.step()


def several():
    """Three trainings by functions of their own, as a notebook's cells do."""
    for _ in range(3):
        train(1000)
    return 3000


def longer():
    """Two trainings with an evaluation and a pause between them, the second of steps that are ten times as long."""
    train(2000)
    model, optimizer = nn.Linear(512, 512), None
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(300):
        optimizer.zero_grad()
        model(torch.ones(64, 512)).sum().backward()
        optimizer.step()
    return 2300


def gan():
    """Two optimizers in turns: a step is a turn of both."""
    (one, first), (two, second) = model_and(), model_and(torch.optim.Adam)
    for _ in range(1500):
        step(one, first)
        step(two, second)
    return 1500


def critics():
    """A GAN whose critic makes five steps for each of the generator's."""
    (one, first), (two, second) = model_and(), model_and(torch.optim.Adam)
    for turn in range(3000):
        step(one, first)
        if turn % 5 == 4:
            step(two, second)
    return 3000


def anew():
    """A new model and optimizer in each epoch."""
    for _ in range(30):
        model, optimizer = model_and()
        for _ in range(100):
            step(model, optimizer)
    return 3000


def same_model():
    """A new optimizer for the same model in each epoch."""
    model, _ = model_and()
    for _ in range(30):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(100):
            step(model, optimizer)
    return 3000


def accumulate():
    """Four backward passes a step."""
    model, optimizer = model_and()
    for turn in range(6000):
        model(torch.ones(4, 8)).square().mean().backward()
        if turn % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    return 1500


def evaluate():
    """Long evaluations between epochs of short steps."""
    model, optimizer = model_and()
    for _ in range(10):
        for _ in range(300):
            step(model, optimizer)
        with torch.no_grad():
            for _ in range(500):
                model(torch.ones(4, 8))
    return 3000


def loaders():
    """A new loader in each epoch."""
    model, optimizer = model_and()
    data = torch.utils.data.TensorDataset(torch.ones(400, 8))
    for _ in range(10):
        for (batch,) in torch.utils.data.DataLoader(data, batch_size=2, shuffle=True):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    return 2000


made = globals()[sys.argv[1]]()
print(sys.argv[1], digest(torch.rand(2)))
print("steps made:", made)
