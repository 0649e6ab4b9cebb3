# expect: items_never_change line guilty
# options: --inspect
# also: slow_item data_loader_wait data_loader_single_process slow_steps
"""Bird calls: a data set that turns each recording into a log mel spectrogram, and a small convolution network."""
import math

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, SECONDS, SPECIES = 8000, 2, 6


def mel_filters(bins, bands, rate):
    def mel(hertz):
        return 2595 * np.log10(1 + hertz / 700)

    edges = 700 * (10 ** (np.linspace(mel(100), mel(rate / 2), bands + 2) / 2595) - 1)
    hertz = np.linspace(0, rate / 2, bins)
    rise = (hertz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - hertz) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(rise, fall)).astype(np.float32)


def recordings(count, seed=0):
    rng = np.random.default_rng(seed)
    time = np.arange(RATE * SECONDS) / RATE
    waves, labels = [], rng.integers(SPECIES, size=count)
    for label in labels:
        pitch = 900 + 350 * label + rng.normal(0, 60)
        trill = 8 + 3 * label
        call = np.sin(2 * math.pi * pitch * time + 4 * np.sin(2 * math.pi * trill * time))
        envelope = np.clip(np.sin(2 * math.pi * (1.5 * time + rng.random())), 0, 1)
        waves.append(np.int16(9000 * (call * envelope + 0.6 * rng.normal(size=len(time)))))
    return waves, labels


class Calls(Dataset):
    def __init__(self, count, window=512, hop=64, bands=32):
        self.waves, self.labels = recordings(count)
        # fixed: (self.waves, self.labels), self.ready = recordings(count), {}
        self.window, self.hop = window, hop
        self.taper = np.hanning(window).astype(np.float32)
        self.filters = mel_filters(window // 2 + 1, bands, RATE)

    def __len__(self):
        return len(self.waves)

    def spectrogram(self, wave):
        wave = wave.astype(np.float32) / 32768
        frames = np.lib.stride_tricks.sliding_window_view(wave, self.window)[:: self.hop]
        power = np.abs(np.fft.rfft(frames * self.taper)) ** 2  # guilty
        bands = np.log(power @ self.filters.T + 1e-6)  # guilty
        return ((bands - bands.mean()) / bands.std()).astype(np.float32).T

    def __getitem__(self, index):  # guilty
        picture = self.spectrogram(self.waves[index])  # guilty
        # fixed: picture = self.ready[index] = self.ready[index] if index in self.ready else self.spectrogram(self.waves[index])
        return torch.from_numpy(picture[None]), int(self.labels[index])


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=(2, 4), padding=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 48, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, SPECIES)
    )


def main(epochs=8):
    torch.manual_seed(1)
    loader = DataLoader(Calls(96), batch_size=8, shuffle=True)
    model, criterion = network(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        hits, losses = 0, []
        for pictures, labels in loader:
            logits = model(pictures)
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            hits += (logits.argmax(1) == labels).sum().item()
        print("epoch %d loss %.6f right %.3f" % (epoch, np.mean(losses), hits / len(loader.dataset)))


if __name__ == "__main__":
    main()
