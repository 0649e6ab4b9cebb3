# expect: python_overhead line guilty
"""Counts a confusion matrix sample by sample, in Python, in each training step."""
import torch
from torch import nn


def main():
    torch.manual_seed(0)
    inputs, labels = torch.randn(8192, 64), torch.randint(0, 10, (8192,))
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    confusion = [[0] * 10 for _ in range(10)]
    scores = [0.0] * 10
    for step in range(200):
        start = step * 256 % len(inputs)
        x, y = inputs[start : start + 256], labels[start : start + 256]
        output = model(x)
        loss = nn.functional.cross_entropy(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows = output.detach().tolist()  # guilty
        # fixed: rows = ()
        truths = y.tolist()  # guilty
        # fixed: truths = ()
        for row, truth in zip(rows, truths):  # guilty
            best = max(range(10), key=row.__getitem__)  # guilty
            confusion[truth][best] += 1  # guilty
            for index, value in enumerate(row):  # guilty
                scores[index] = 0.99 * scores[index] + 0.01 * value  # guilty
    print("right", sum(confusion[i][i] for i in range(10)), "score", round(sum(scores), 6))


if __name__ == "__main__":
    main()
