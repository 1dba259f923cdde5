"""Pretrained weights of torch.hub: one download for all ranks of a machine."""

from __future__ import annotations

from pathlib import Path

import torch
from jobs import run, write

BODY = """
import shutil, urllib.request
ddp.init()
real = torch.hub.urlopen
def fetched(request, *args):
    with open(f"fetched.{os.getpid()}", "w"):
        time.sleep(1)  # long enough for another rank to come
    return real(request, *args)
torch.hub.urlopen = fetched
url = "file://" + os.path.abspath("weights.pth")
state = torch.hub.load_state_dict_from_url(url, model_dir=os.path.abspath("cache"), progress=False)
assert state["weight"].tolist() == [1, 2]
if ddp.get_rank() == 1:  # as often as the program asks for it
    torch.hub.download_url_to_file(url, "cache/weights.pth", progress=False)
"""


def test_weights_are_downloaded_once(tmp_path: Path) -> None:
    torch.save({"weight": torch.tensor([1, 2])}, tmp_path / "weights.pth")
    write(tmp_path, BODY)
    result = run(["train.py"], tmp_path, processes=3)
    assert result.code == 0 and result.left == [], result.err
    assert len(list(tmp_path.glob("fetched.*"))) == 2  # the first, and rank 1 again
