"""train_digits.py with its two findings fixed: worker processes, and fewer threads so that they get a core."""

import os
import random

import numpy as np
import torch
from scipy import ndimage
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS = 4
BATCH = 32
WORKERS = min(4, len(os.sched_getaffinity(0)))


def distort(image, strength=12.0, smoothness=4.0):
    """Bend the image as handwriting bends (Simard et al., 2003)."""
    rows, columns = np.meshgrid(*map(np.arange, image.shape), indexing="ij")
    bend = [ndimage.gaussian_filter(np.random.uniform(-1, 1, image.shape), smoothness) for _ in range(2)]
    return ndimage.map_coordinates(image, [rows + strength * bend[0], columns + strength * bend[1]], order=3)


class Digits(Dataset):
    """The 1 797 scans of scikit-learn's digits, drawn larger and distorted anew each time."""

    def __init__(self, images, labels, augment):
        self.images = images
        self.labels = labels
        self.augment = augment

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = ndimage.zoom(self.images[index] / 16.0, 4, order=3)
        if self.augment:
            image = ndimage.rotate(image, random.uniform(-15, 15), reshape=False, order=3)
            image = ndimage.shift(image, (random.uniform(-2, 2), random.uniform(-2, 2)), order=3)
            image = distort(image)
        image = (image - 0.31) / 0.38
        return torch.tensor(image, dtype=torch.float32).unsqueeze(0), int(self.labels[index])


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 8 * 8, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def evaluate(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for images, labels in loader:
            right += (model(images).argmax(1) == labels).sum().item()
            total += len(labels)
    return right / total


def main():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # on a CPU, training and workers share the cores
    digits = load_digits()
    split = 1500
    train = DataLoader(
        Digits(digits.images[:split], digits.target[:split], augment=True),
        batch_size=BATCH,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=True,
    )
    test = DataLoader(Digits(digits.images[split:], digits.target[split:], augment=False), batch_size=BATCH)

    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        model.train()
        running = 0.0
        for images, labels in train:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            running += loss.item()
        print(f"epoch {epoch + 1}: loss {running / len(train):.4f}, accuracy {evaluate(model, test):.3f}")


if __name__ == "__main__":
    main()
