# expect: unused_gradients line guilty
# twin: healthy
"""A Wasserstein GAN that draws shapes; the critic learns from fakes that are not detached."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Opt:
    n_epochs = 3
    batch_size = 32
    lr = 5e-5
    latent_dim = 64
    n_critic = 4
    clip_value = 0.01
    img_size = 16


opt = Opt()
torch.manual_seed(123)
np.random.seed(123)


def draw_shapes(n, size):
    yy, xx = np.mgrid[:size, :size]
    imgs = np.zeros((n, 1, size, size), dtype=np.float32)
    for i in range(n):
        cx, cy = np.random.uniform(4, size - 4, 2)
        r = np.random.uniform(2, 5)
        if np.random.rand() < 0.5:
            imgs[i, 0] = (xx - cx) ** 2 + (yy - cy) ** 2 < r * r
        else:
            imgs[i, 0] = (np.abs(xx - cx) < r) & (np.abs(yy - cy) < r)
    return imgs * 2 - 1


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.init_size = opt.img_size // 4
        self.l1 = nn.Linear(opt.latent_dim, 96 * self.init_size ** 2)
        self.conv_blocks = nn.Sequential(
            nn.BatchNorm2d(96),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(96, 96, 3, padding=1),
            nn.BatchNorm2d(96),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(96, 48, 3, padding=1),
            nn.BatchNorm2d(48),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(48, 1, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        out = self.l1(z).view(z.size(0), 96, self.init_size, self.init_size)
        return self.conv_blocks(out)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv2d(1, 24, 3, 2, 1), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(24, 48, 3, 2, 1), nn.LeakyReLU(0.2, inplace=True),
            nn.Flatten(), nn.Linear(48 * (opt.img_size // 4) ** 2, 1),
        )

    def forward(self, img):
        return self.model(img)


generator = Generator()
critic = Critic()
optimizer_G = torch.optim.RMSprop(generator.parameters(), lr=opt.lr)
optimizer_C = torch.optim.RMSprop(critic.parameters(), lr=opt.lr)
dataset = TensorDataset(torch.from_numpy(draw_shapes(6400, opt.img_size)))
dataloader = DataLoader(dataset, batch_size=opt.batch_size, shuffle=True, drop_last=True)

batches_done = 0
for epoch in range(opt.n_epochs):
    for i, (real_imgs,) in enumerate(dataloader):
        # train critic
        optimizer_C.zero_grad()
        z = torch.randn(real_imgs.size(0), opt.latent_dim)
        fake_imgs = generator(z)  # guilty
        # fixed: fake_imgs = generator(z).detach()
        loss_C = critic(fake_imgs).mean() - critic(real_imgs).mean()
        loss_C.backward()
        optimizer_C.step()
        with torch.no_grad():
            for p in critic.parameters():
                p.clamp_(-opt.clip_value, opt.clip_value)

        # train generator every n_critic iterations
        if i % opt.n_critic == 0:
            optimizer_G.zero_grad()
            z = torch.randn(real_imgs.size(0), opt.latent_dim)
            loss_G = -critic(generator(z)).mean()
            loss_G.backward()
            optimizer_G.step()
            if batches_done % 100 == 0:
                print("[Epoch %d/%d] [Batch %d/%d] [C loss: %f] [G loss: %f]"
                      % (epoch, opt.n_epochs, i, len(dataloader), loss_C.item(), loss_G.item()), flush=True)
        batches_done += 1
