"""MNIST on all GPUs of a machine, or on the CPU: the runtime used by hand."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from dp2ddp import runtime as ddp


def main(args):
    torch.manual_seed(args.seed)
    device = ddp.device()

    with ddp.main_process_first():
        train_set = datasets.MNIST(
            args.data, train=True, download=True, transform=transforms.ToTensor()
        )
        test_set = datasets.MNIST(
            args.data, train=False, download=True, transform=transforms.ToTensor()
        )
    train_loader = ddp.shard(DataLoader(train_set, batch_size=args.batch_size, shuffle=True))
    test_loader = ddp.shard(DataLoader(test_set, batch_size=500), training=False)

    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1152, 10),
    )
    model = ddp.DistributedDataParallel(model.to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(1, args.epochs + 1):
        model.train()
        for images, labels in train_loader:
            loss = F.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        model.eval()
        correct = 0
        with torch.no_grad():
            for images, labels in test_loader:
                correct += (
                    (model.module(images.to(device)).argmax(1) == labels.to(device)).sum().item()
                )
        ddp.print(f"epoch {epoch}: accuracy {100 * ddp.sum(correct) / len(test_set):.2f} %")

        ddp.save(model.module.state_dict(), "mnist.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    ddp.launch(main, parser.parse_args())
