import argparse
import os
import shutil
import time

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms

from dp2ddp import runtime as ddp


class Net(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, kernel_size=5, stride=2, padding=2),
            nn.ReLU(inplace=True),
            nn.Conv2d(12, 16, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(16 * 7 * 7, 64),
            nn.ReLU(inplace=True),
            nn.Linear(64, num_classes),
        )

    def forward(self, x):
        return self.classifier(self.features(x))


class AverageMeter(object):
    """Computes and stores the average and current value"""

    def __init__(self):
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def train(args, model, device, train_loader, criterion, optimizer, epoch):
    losses = AverageMeter()
    model.train()
    end = time.time()
    for i, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        output = model(data)
        loss = criterion(output, target)
        losses.update(ddp.batch_loss(loss).item(), ddp.sum(data.size(0)))

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        if i % args.print_freq == 0:
            print(
                "Epoch: [{0}][{1}/{2}]\tLoss {loss.val:.4f} ({loss.avg:.4f})".format(
                    epoch, i, len(train_loader), loss=losses
                )
            )
    print("Epoch {} took {:.1f}s".format(epoch, time.time() - end))
    return losses.avg


def validate(model, device, val_loader, criterion):
    losses = AverageMeter()
    top1 = AverageMeter()
    model.eval()
    with torch.no_grad():
        for data, target in ddp.shard_batches(val_loader):
            data, target = data.to(device), target.to(device)
            output = model(data)
            loss = criterion(output, target)
            pred = output.argmax(dim=1)
            acc = pred.eq(target).float().mean() * 100
            losses.update(loss.item(), data.size(0))
            top1.update(acc.item(), data.size(0))
    losses, top1 = ddp.sum((losses, top1))
    print(" * Acc@1 {top1.avg:.3f} Loss {loss.avg:.4f}".format(top1=top1, loss=losses))
    return top1.avg


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    ddp.save(state, filename)
    if ddp.is_main_process() and is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


def adjust_learning_rate(args, optimizer, epoch):
    """Sets the learning rate to the initial LR decayed by 10 every 5 epochs"""
    lr = args.lr * (0.1 ** (epoch // 5))
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr


def main():
    parser = argparse.ArgumentParser(description="PyTorch MNIST Example")
    parser.add_argument("--data", default=os.environ.get("MNIST_ROOT", "data"))
    parser.add_argument("-b", "--batch-size", default=128, type=int)
    parser.add_argument("--epochs", default=5, type=int)
    parser.add_argument("--start-epoch", default=0, type=int)
    parser.add_argument("--lr", default=0.05, type=float)
    parser.add_argument("--momentum", default=0.9, type=float)
    parser.add_argument("--weight-decay", default=1e-4, type=float)
    parser.add_argument("--seed", default=1, type=int)
    parser.add_argument("-j", "--workers", default=0, type=int)
    parser.add_argument("-p", "--print-freq", default=100, type=int)
    parser.add_argument("--no-cuda", action="store_true", help="disables CUDA training")
    parser.add_argument("--resume", default="", help="path to latest checkpoint")
    parser.add_argument("-e", "--evaluate", action="store_true")
    args = parser.parse_args()

    use_cuda = not args.no_cuda and torch.cuda.is_available()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if use_cuda else "cpu")

    transform = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))]
    )
    with ddp.main_process_first():
        train_dataset = datasets.MNIST(
            args.data, train=True, download=True, transform=transform
        )
    train_sampler = DistributedSampler(
        train_dataset, shuffle=True, seed=ddp.shared_seed(), drop_last=True
    )
    train_loader = DataLoader(
        train_dataset,
        ddp.local_batch_size(args.batch_size),
        shuffle=False,
        num_workers=ddp.local_workers(args.workers),
        pin_memory=use_cuda,
        drop_last=True,
        sampler=train_sampler,
    )
    with ddp.main_process_first():
        val_loader = DataLoader(
            datasets.MNIST(args.data, train=False, download=True, transform=transform),
            batch_size=args.batch_size,
            num_workers=ddp.local_workers(args.workers),
            pin_memory=use_cuda,
        )

    model = ddp.DistributedDataParallel(Net().to(device))
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = optim.SGD(
        model.parameters(),
        args.lr,
        momentum=args.momentum,
        weight_decay=args.weight_decay,
    )

    best_acc1 = 0
    # optionally resume from a checkpoint
    if args.resume:
        if os.path.isfile(args.resume):
            print("=> loading checkpoint '{}'".format(args.resume))
            checkpoint = torch.load(args.resume, map_location=ddp.map_location)
            args.start_epoch = checkpoint["epoch"]
            best_acc1 = checkpoint["best_acc1"]
            model.module.load_state_dict(
                ddp.strip_module_prefix(checkpoint["state_dict"])
            )
            optimizer.load_state_dict(checkpoint["optimizer"])
            print("=> loaded checkpoint (epoch {})".format(checkpoint["epoch"]))
        else:
            print("=> no checkpoint found at '{}'".format(args.resume))

    if args.evaluate:
        validate(model, device, val_loader, criterion)
        return

    for epoch in range(args.start_epoch, args.epochs):
        train_sampler.set_epoch(epoch)
        adjust_learning_rate(args, optimizer, epoch)
        loss = train(args, model, device, train_loader, criterion, optimizer, epoch)
        print("Epoch {}: train loss {:.4f}".format(epoch, loss))
        acc1 = validate(model, device, val_loader, criterion)

        # remember best acc@1 and save checkpoint
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        save_checkpoint(
            {
                "epoch": epoch + 1,
                "state_dict": model.module.state_dict(),
                "best_acc1": best_acc1,
                "optimizer": optimizer.state_dict(),
            },
            is_best,
        )

    ddp.barrier()
    # final numbers with the best model
    best = torch.load("model_best.pth.tar", map_location=ddp.map_location)
    model.module.load_state_dict(ddp.strip_module_prefix(best["state_dict"]))
    print("Best model, epoch {}".format(best["epoch"]))
    acc1 = validate(model, device, val_loader, criterion)
    print("Best accuracy: {:.2f}".format(acc1))


if __name__ == "__main__":
    ddp.launch(main)
