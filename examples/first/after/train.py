"""Trains a small network on all GPUs of one machine, with nn.DataParallel. The images are random: nothing is downloaded."""

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms

from dp2ddp import runtime as ddp

ddp.init()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = datasets.FakeData(640, (1, 28, 28), 10, transforms.ToTensor())
sampler = DistributedSampler(data, shuffle=True, seed=ddp.shared_seed())
loader = DataLoader(data, batch_size=ddp.local_batch_size(64), shuffle=False, sampler=sampler)
net = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
model = ddp.DistributedDataParallel(net.to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(3):
    sampler.set_epoch(epoch)
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {ddp.batch_loss(loss).item():.3f}")
    ddp.save(model.module.state_dict(), "model.pt")
