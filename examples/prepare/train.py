import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

from speech import Recordings

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="/data/recordings")
args = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(Recordings(args.data), batch_size=32, shuffle=True)
net = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 10))
model = nn.DataParallel(net.to(device))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(10):
    for features, speaker in loader:
        loss = nn.functional.cross_entropy(model(features.to(device)), speaker.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), "speakers.pt")
