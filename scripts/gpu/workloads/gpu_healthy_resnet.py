# expect: healthy
"""Trains a ResNet-50 in bfloat16 and channels-last, from ten workers, with pinned batches."""

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self):
        self.images = torch.randint(0, 255, (256, 3, 224, 224), dtype=torch.uint8)

    def __len__(self):
        return 256 * 70

    def __getitem__(self, index):
        return self.images[index % 256], index % 10


torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
model = torchvision.models.resnet50(num_classes=10).cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
loader = DataLoader(Images(), batch_size=256, shuffle=True, num_workers=10, pin_memory=True, drop_last=True)
for step, (images, labels) in enumerate(loader):
    images = images.cuda(non_blocking=True).to(torch.bfloat16, memory_format=torch.channels_last).div_(255)
    labels = labels.cuda(non_blocking=True)
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print("loss", loss.item())
