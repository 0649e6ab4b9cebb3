# expect: unused_work line guilty
# options: --inspect
"""Word prediction with an LSTM: the word that follows a window of words; windows overlap, so each one has one target."""
import torch
import torch.nn as nn

VOCABULARY, WINDOW = 1800, 40


class WordModel(nn.Module):
    def __init__(self, width=64, layers=1):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.decoder = nn.Linear(width, VOCABULARY)

    def forward(self, words):
        batch, length = words.shape
        states, _ = self.lstm(self.embedding(words))
        # fixed: states, length = self.lstm(self.embedding(words))[0][:, -1:], 1
        scores = self.decoder(states.reshape(batch * length, -1))  # guilty
        return scores.view(batch, length, VOCABULARY)


def corpus(length, generator):
    """A chain in which each word allows a few others."""
    followers = torch.randint(VOCABULARY, (VOCABULARY, 3), generator=generator)
    picks = torch.randint(3, (length,), generator=generator).tolist()
    words, table = [0], followers.tolist()
    for pick in picks:
        words.append(table[words[-1]][pick])
    return torch.tensor(words)


def main():
    torch.manual_seed(100)
    words = corpus(20000, torch.Generator().manual_seed(55))
    windows = words.unfold(0, WINDOW + 1, 3)
    model, criterion = WordModel(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    order = torch.randperm(len(windows))
    for step in range(110):
        batch = windows[order[16 * step:16 * step + 16]]
        predicted = model(batch[:, :-1])
        loss = criterion(predicted[:, -1], batch[:, -1])  # guilty
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step:4d}  loss {loss.item():.5f}  perplexity {loss.exp().item():.1f}")


if __name__ == "__main__":
    main()
