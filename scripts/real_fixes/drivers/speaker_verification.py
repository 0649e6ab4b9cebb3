"""Train the speaker embedder of HarryVolek/PyTorch_Speaker_Verification on random mel spectrograms."""

from __future__ import annotations

import functools
import time

import torch
import yaml
from torch.utils.data import DataLoader, TensorDataset

yaml.load_all = functools.partial(
    yaml.load_all, Loader=yaml.SafeLoader
)  # the project was written for an older PyYAML

from hparam import hparam  # noqa: E402

hparam.model.hidden, hparam.model.proj = 128, 64  # 768 and 256 need a GPU

from speech_embedder_net import GE2ELoss, SpeechEmbedder  # noqa: E402

SPEAKERS, UTTERANCES, BATCH, FRAMES, MELS, EPOCHS = 120, 5, 24, 60, 40, 5


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    spectrograms = torch.randn(SPEAKERS, UTTERANCES, FRAMES, MELS)
    loader = DataLoader(TensorDataset(spectrograms), batch_size=BATCH, shuffle=True, drop_last=True)
    embedder = SpeechEmbedder()
    criterion = GE2ELoss(torch.device("cpu"))
    optimizer = torch.optim.SGD([*embedder.parameters(), *criterion.parameters()], lr=0.01)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for (mel,) in loader:
            order = torch.randperm(BATCH * UTTERANCES)
            optimizer.zero_grad()
            embeddings = embedder(mel.reshape(BATCH * UTTERANCES, FRAMES, MELS)[order])
            embeddings = embeddings[torch.argsort(order)].reshape(BATCH, UTTERANCES, -1)
            loss = criterion(embeddings)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(embedder.parameters(), 3.0)
            torch.nn.utils.clip_grad_norm_(criterion.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()
