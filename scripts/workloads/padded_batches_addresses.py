# expect: padded_batches
# held out
# twin: healthy
"""Tell the country of an address with a GRU over its letters; all addresses were padded once, to the longest of all."""
import random

import torch
from torch import nn

random.seed(1)
torch.manual_seed(1)
torch.set_num_threads(1)
LETTERS = "abcdefghijklmnopqrstuvwxyz "
COUNTRIES = 6


def write_address(country):
    often = LETTERS[country * 4:country * 4 + 6]
    words = random.randint(2, 7) if random.random() < 0.995 else 30
    return " ".join("".join(random.choice(often + LETTERS[:-1]) for _ in range(random.randint(2, 6)))
                    for _ in range(words))


def load(count):
    countries = [random.randrange(COUNTRIES) for _ in range(count)]
    texts = [write_address(country) for country in countries]
    rows = [torch.tensor([LETTERS.index(letter) + 1 for letter in text]) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor(countries)


class Tagger(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS) + 1, width, padding_idx=0)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.country = nn.Linear(width, COUNTRIES)

    def forward(self, text):
        states, _ = self.gru(self.letters(text))
        real = (text != 0).unsqueeze(-1)
        return self.country((states * real).sum(1) / real.sum(1))


texts, countries = load(3000)
net = Tagger()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(3):
    right = torch.zeros(())
    for rows in torch.randperm(len(texts)).split(16):
        scores = net(texts[rows])
        # fixed: scores = net(texts[rows][:, : int((texts[rows] != 0).sum(1).max())])
        loss = nn.functional.cross_entropy(scores, countries[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += (scores.argmax(1) == countries[rows]).sum()
    print(f"epoch {epoch}: accuracy {right.item() / len(texts):.3f}")
