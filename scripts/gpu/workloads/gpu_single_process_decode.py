# expect: data_loader_single_process line guilty
# also: slow_item gpu_waits_for_data busy_but_idle_units utilization_sawtooth small_batch
"""Decodes and crops JPEG images in the training process, for a ResNet-18 in bfloat16."""

import io

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Photos(Dataset):
    def __init__(self):
        generator = np.random.default_rng(0)
        self.files = []
        for _ in range(64):
            small = Image.fromarray(generator.integers(0, 255, (48, 64, 3), dtype=np.uint8))
            file = io.BytesIO()
            small.resize((640, 480)).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())
        self.transform = transforms.Compose(
            [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        )

    def __len__(self):
        return 64 * 30

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index % 64]))
        return self.transform(image), index % 10


torch.manual_seed(0)
model = torchvision.models.resnet18(num_classes=10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
loader = DataLoader(Photos(), batch_size=64, shuffle=True)  # guilty
for images, labels in loader:
    images, labels = images.cuda(), labels.cuda()
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
