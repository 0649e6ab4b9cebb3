"""Train PyKEEN's TransE (POEM, as it was called) on a random knowledge graph, with its training loop."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from poem.instance_creation_factories.instances import OWAInstances
from poem.models.unimodal.trans_e import TransE
from poem.training_loops.owa import OWATrainingLoop
from torch import nn

ENTITIES, RELATIONS, TRIPLES, BATCH, EPOCHS = 2000, 20, 32768, 128, 8

reshape = np.reshape


def reshape_as_named(array: Any, newshape: tuple[int, ...]) -> np.ndarray:
    """Reshape with the name of an argument that NumPy 2.1 took away."""
    return reshape(array, newshape)


class Losses(list[float]):
    """Prints the loss and the time of each epoch."""

    def append(self, loss: float) -> None:
        """Take the loss of an epoch."""
        now = time.perf_counter()
        print(f"epoch {len(self)} loss {loss:.4f} seconds {now - self.started:.3f}", flush=True)
        self.started = now
        super().append(loss)

    started = time.perf_counter()


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    np.random.seed(0)
    np.reshape = reshape_as_named  # type: ignore[assignment]
    limits = (ENTITIES, RELATIONS, ENTITIES)
    triples = np.stack([np.random.randint(limit, size=TRIPLES) for limit in limits], axis=1)
    model = TransE(ENTITIES, RELATIONS, criterion=nn.MarginRankingLoss(margin=1.0, reduction="mean"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loop = OWATrainingLoop(kge_model=model, optimizer=optimizer, all_entities=np.arange(ENTITIES))
    loop.losses_per_epochs = Losses()
    instances = OWAInstances(instances=triples, entity_to_id={}, relation_to_id={})
    loop.train(training_instances=instances, num_epochs=EPOCHS, batch_size=BATCH)


if __name__ == "__main__":
    main()
