"""The data set of train.py: one file for each recording."""

import torch
from torch.utils.data import Dataset


class Recordings(Dataset):
    def __init__(self, folder):
        self.files = open(f"{folder}/index.txt").read().split()

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        recording = torch.load(self.files[i])
        return recording["features"], recording["speaker"]
