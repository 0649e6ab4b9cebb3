"""Train a small ResNet with lightly's MoCo, as its example does: a second network follows by moving average."""

from __future__ import annotations

import copy
import time

import torch
from lightly.loss import NTXentLoss
from lightly.models.modules import MoCoProjectionHead
from lightly.models.utils import deactivate_requires_grad, update_momentum
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet18

IMAGES, SIZE, BATCH, EPOCHS = 40, 32, 8, 6


class MoCo(nn.Module):
    """The model of lightly's example."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(*list(resnet18().children())[:-1])
        self.projection_head = MoCoProjectionHead(512, 512, 128)
        self.backbone_momentum = copy.deepcopy(self.backbone)
        self.projection_head_momentum = copy.deepcopy(self.projection_head)
        deactivate_requires_grad(self.backbone_momentum)
        deactivate_requires_grad(self.projection_head_momentum)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the projection of the trained network."""
        query: torch.Tensor = self.projection_head(self.backbone(images).flatten(start_dim=1))
        return query

    def forward_momentum(self, images: torch.Tensor) -> torch.Tensor:
        """Return the projection of the network that follows."""
        key = self.projection_head_momentum(self.backbone_momentum(images).flatten(start_dim=1))
        projection: torch.Tensor = key.detach()
        return projection


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    model = MoCo()
    loader = DataLoader(
        TensorDataset(torch.rand(IMAGES, 3, SIZE, SIZE)), batch_size=BATCH, shuffle=True, drop_last=True
    )
    criterion = NTXentLoss(memory_bank_size=(4096, 128))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.06)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for (images,) in loader:
            update_momentum(model.backbone, model.backbone_momentum, m=0.996)
            update_momentum(model.projection_head, model.projection_head_momentum, m=0.996)
            query = model(images)
            key = model.forward_momentum(images.flip(3) + 0.1 * torch.randn_like(images))
            loss = criterion(query, key)
            total += loss.item()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()
