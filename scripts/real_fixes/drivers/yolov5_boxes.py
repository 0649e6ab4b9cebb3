"""Train the smallest YOLOv5 on random images with random boxes, with the project's loss."""

from __future__ import annotations

import time

import torch
import yaml
from models.yolo import Model
from utils.loss import ComputeLoss

IMAGES, SIZE, BATCH, BOXES, CLASSES, EPOCHS = 32, 64, 8, 12, 10, 7


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    with open("data/hyps/hyp.scratch-low.yaml", encoding="utf-8") as file:
        settings = yaml.safe_load(file)
    model = Model("models/yolov5n.yaml", ch=3, nc=CLASSES)
    model.hyp, model.nc = settings, CLASSES
    loss_function = ComputeLoss(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
    images = torch.rand(IMAGES, 3, SIZE, SIZE)
    boxes = torch.cat([torch.rand(IMAGES, BOXES, 2), torch.rand(IMAGES, BOXES, 2) * 0.4 + 0.05], -1)
    classes = torch.randint(CLASSES, (IMAGES, BOXES, 1)).float()
    places = torch.arange(BATCH).repeat_interleave(BOXES).unsqueeze(1).float()
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for chosen in torch.randperm(IMAGES).split(BATCH):
            labels = torch.cat([classes[chosen], boxes[chosen]], -1).flatten(0, 1)
            loss, _ = loss_function(model(images[chosen]), torch.cat([places, labels], 1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / (IMAGES // BATCH):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()
