"""Start and end a training job again and again: ``python tests/runtime/starts.py`` does it 200 times in each way.

Its exit code is 1 if one of them ended otherwise than quietly with 0. It takes a quarter of an hour for each way.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import jobs

SCRIPT = """
from torch import nn
def main():
    model = ddp.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    for _ in range(5):
        model(torch.ones(2, 4)).sum().backward()
    ddp.print(ddp.sum(1))
ddp.launch(main)
"""
WAYS = {"python": ["train.py"], "torchrun": [*jobs.TORCHRUN, "train.py"]}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=200, metavar="N")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    options = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        jobs.write(Path(folder), SCRIPT)
        for way in options.ways:
            begin, wrong = time.monotonic(), 0
            for number in range(1, options.times + 1):
                try:
                    result = jobs.run(WAYS[way], Path(folder), processes=2, limit=180, OMP_NUM_THREADS=1)
                    good = (result.code, result.out, result.err, result.left) == (0, "2\n", "", [])
                except AssertionError as error:  # over the time limit
                    result, good = error, False
                if not good:
                    wrong += 1
                    print(f"{way}, start {number}: {result}", file=sys.stderr, flush=True)
            seconds = time.monotonic() - begin
            print(
                f"{way}: {options.times} starts, {wrong} bad ends, {seconds / options.times:.1f} s each",
                flush=True,
            )
            bad += wrong
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
