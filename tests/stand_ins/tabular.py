"""A package that reads a folder, and of which nothing is known."""

import os


def read_all(folder):
    return sum(len(open(os.path.join(folder, it)).read().split()) for it in sorted(os.listdir(folder)))
