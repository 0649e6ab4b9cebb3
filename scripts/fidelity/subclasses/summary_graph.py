"""TensorBoard's writer with a model's graph, scalars and histograms, before and after steps."""

from pathlib import Path

import torch
from moments import check, watch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.tensorboard import SummaryWriter

count = 0


@check
def graph():
    """The nodes of the graph that was written for each of three models, and the weights' histogram."""
    global count
    found = []
    inputs = torch.ones(2, 4), torch.tensor([[0, 1]]), torch.ones(1, 1, 6, 6)
    models = (
        nn.Sequential(nn.Linear(4, 4)),
        nn.Sequential(nn.Embedding(4, 3)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()),
    )
    for model, given in zip(models, inputs, strict=True):
        count += 1
        folder = Path("logs", f"{count:04}")
        with SummaryWriter(str(folder)) as writer:
            writer.add_graph(model, given)
            writer.add_scalar("loss", next(model.parameters()).sum(), 1)
            writer.add_histogram("weights", next(model.parameters()), 1)
        events = EventAccumulator(str(folder)).Reload()
        found.append([f"{node.op} {node.name} {list(node.input)}" for node in events.Graph().node])
        found.append([event.value for event in events.Scalars("loss")])
    return found


watch(1500, 500)
