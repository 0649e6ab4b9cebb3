# expect: worker_restart line guilty
# also: data_loader_wait slow_steps first_batch_latency
# held out
"""A GAN on a few hundred sketches: very many epochs of ten batches, each with workers of its own."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

nz, ndf, batch = 32, 384, 32


class Sketches(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self.strokes = torch.rand(320, 4, generator=generator)

    def __len__(self):
        return len(self.strokes)

    def __getitem__(self, index):
        x0, y0, x1, y1 = self.strokes[index]
        t = torch.linspace(0, 1, 32)
        picture = torch.zeros(20, 20)
        picture[((y0 + t * (y1 - y0)) * 19).long(), ((x0 + t * (x1 - x0)) * 19).long()] = 1
        return picture.mul_(2).sub_(1).flatten()


torch.manual_seed(999)
netG = nn.Sequential(nn.Linear(nz, ndf), nn.ReLU(), nn.Linear(ndf, 400), nn.Tanh())
netD = nn.Sequential(nn.Linear(400, ndf), nn.LeakyReLU(0.2), nn.Linear(ndf, 1))
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
real_label, fake_label = torch.ones(batch, 1), torch.zeros(batch, 1)

dataloader = DataLoader(Sketches(), batch_size=batch, shuffle=True, num_workers=2)  # guilty
# fixed: dataloader = DataLoader(Sketches(), batch_size=batch, shuffle=True, num_workers=2, persistent_workers=True)
for epoch in range(30):
    for i, real in enumerate(dataloader, 0):
        # Update D: maximise log(D(x)) + log(1 - D(G(z)))
        netD.zero_grad()
        fake = netG(torch.randn(batch, nz))
        errD = criterion(netD(real), real_label) + criterion(netD(fake.detach()), fake_label)
        errD.backward()
        optimizerD.step()
        # Update G: maximise log(D(G(z)))
        netG.zero_grad()
        errG = criterion(netD(fake), real_label)
        errG.backward()
        optimizerG.step()
    if epoch % 10 == 0:
        print("[%d/30] Loss_D: %.4f Loss_G: %.4f" % (epoch, errD.item(), errG.item()))
