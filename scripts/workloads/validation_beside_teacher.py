# expect: validation_share line guilty
"""Knowledge distillation: a wide teacher, a narrow student, stop when the student levels off."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def get_data():
    d = load_digits()
    xtr, xte, ytr, yte = train_test_split(d.images, d.target, test_size=0.5, random_state=0)

    def prep(x, y):
        x = torch.tensor(x, dtype=torch.float32).unsqueeze(1) / 16
        return F.interpolate(x, scale_factor=2, mode="bilinear"), torch.tensor(y)
    return prep(xtr, ytr), prep(xte, yte)


def cnn(w):
    return nn.Sequential(
        nn.Conv2d(1, w, 3, padding=1), nn.BatchNorm2d(w), nn.ReLU(),
        nn.Conv2d(w, w, 3, padding=1), nn.BatchNorm2d(w), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(w, 2 * w, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(8 * w, 10))


class EarlyStopper:
    """Patience is counted in checks, not in epochs: the student trains for a few hundred steps only."""

    def __init__(self, model, held_out, patience=400):
        self.model = model
        self.images, self.labels = held_out
        self.patience = patience
        self.best, self.bad, self.history = 0.0, 0, []

    @torch.no_grad()
    def score(self):
        self.model.eval()
        right = 0
        for i in range(0, len(self.labels), 128):
            right += (self.model(self.images[i:i + 128]).argmax(1) == self.labels[i:i + 128]).sum().item()  # guilty
        self.model.train()
        return right / len(self.labels)

    def done(self):
        acc = self.score()  # guilty
        self.history.append(acc)
        if acc > self.best:
            self.best, self.bad = acc, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


def kd_loss(student, teacher, y, T=3.0, alpha=0.7):
    soft = F.kl_div(F.log_softmax(student / T, 1), F.softmax(teacher / T, 1), reduction="batchmean") * T * T
    return alpha * soft + (1 - alpha) * F.cross_entropy(student, y)


def fit_teacher(net, x, y, steps=25):
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(steps):
        i = torch.randint(len(y), (64,))
        loss = F.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return net.eval().requires_grad_(False)


def main():
    torch.manual_seed(0)
    (x, y), held_out = get_data()
    teacher = fit_teacher(cnn(32), x, y)
    student = cnn(20)
    opt = torch.optim.SGD(student.parameters(), lr=0.02, momentum=0.9)
    stopper = EarlyStopper(student, held_out)
    for step in range(300):
        i = torch.randint(len(y), (64,))
        with torch.no_grad():
            guide = teacher(x[i])
        loss = kd_loss(student(x[i]), guide, y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 4 == 3 and stopper.done():  # guilty
        # fixed: if step % 12 == 11 and stopper.done():
            break
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f} best {stopper.best:.3f}")
    print("best held-out accuracy", stopper.best)


if __name__ == "__main__":
    main()
