"""Saving whole files or none, and reading what wrapped models wrote."""

import errno
import io
import os
import shutil
import stat
import subprocess
from collections import OrderedDict

import pytest
import torch
from torch import nn

from dp2ddp import runtime as ddp


class Unpicklable:
    def __reduce__(self):
        raise OSError("disk full")


def test_a_failing_save_leaves_the_file_and_no_other(tmp_path):
    path = tmp_path / "model.pt"
    ddp.save([1], path)
    with pytest.raises(OSError, match="disk full"):
        ddp.save([torch.ones(1000), Unpicklable()], str(path))
    assert torch.load(path) == [1]
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError):
        ddp.save([1], tmp_path / "missing" / "model.pt")


def test_what_is_no_regular_file_is_written_as_it_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    ddp.save([1, 2], pipe)
    assert torch.load(io.BytesIO(reader.communicate(timeout=20)[0])) == [1, 2]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    read, written = os.pipe()  # as the shell's >(…)
    ddp.save([3], f"/dev/fd/{written}")
    os.close(written)
    with open(read, "rb") as file:
        assert torch.load(io.BytesIO(file.read())) == [3]
    ddp.save([1], os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    with pytest.raises(IsADirectoryError):
        ddp.save([1], tmp_path)


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a file system of 256 KiB that can be mounted anew, read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system is not permitted")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_leaves_the_last_checkpoint(small_disk):
    path = small_disk / "model.pt"
    ddp.save([1], path)
    for obj in (torch.zeros(10**6), [torch.zeros(1000) for _ in range(200)]):
        with pytest.raises(OSError) as raised:
            ddp.save(obj, path)
        assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(path)), raised.value
        with pytest.raises(RuntimeError, match="No space left"):  # torch's old format knows no more
            ddp.save(obj, path, _use_new_zipfile_serialization=False)
        assert torch.load(path) == [1] and list(small_disk.iterdir()) == [path]
    ddp.save([2], path)  # what failed holds no space
    assert torch.load(path) == [2]


def test_a_folder_that_cannot_be_written_leaves_the_last_checkpoint(small_disk, tmp_path):
    path = small_disk / "model.pt"
    ddp.save([1], path)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    cases = [
        (path, errno.EROFS),
        (small_disk / "new.pt", errno.EROFS),
        (tmp_path / "missing" / "a.pt", errno.ENOENT),
    ]
    (tmp_path / "file").touch()
    for target, code in [
        *cases,
        (tmp_path / "file" / "a.pt", errno.ENOTDIR),
        (tmp_path / "disk", errno.EISDIR),
    ]:
        with pytest.raises(OSError) as raised:
            ddp.save([2], target)
        assert (raised.value.errno, raised.value.filename) == (code, str(target)), raised.value
    assert torch.load(path) == [1] and list(small_disk.iterdir()) == [path]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["disk", "file"]


def test_a_saved_file_is_as_torch_would_have_left_it(tmp_path):
    previous = os.umask(0o027)
    try:
        ddp.save([1], tmp_path / "a.pt")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "a.pt").stat().st_mode) == 0o640
    (tmp_path / "latest.pt").symlink_to("a.pt")
    ddp.save([2], tmp_path / "latest.pt", _use_new_zipfile_serialization=False)
    assert (tmp_path / "latest.pt").is_symlink() and torch.load(tmp_path / "a.pt") == [2]
    assert stat.S_IMODE((tmp_path / "a.pt").stat().st_mode) == 0o640
    file = io.BytesIO()
    ddp.save([3], file)
    file.seek(0)
    assert torch.load(file) == [3]


def test_print_writes_to_the_stdout_of_the_moment(capsys, monkeypatch):
    ddp.print("a", 1, sep="-", end="!\n")
    assert capsys.readouterr().out == "a-1!\n"
    monkeypatch.setattr("sys.stdout", stream := io.StringIO())
    ddp.print("here")
    assert stream.getvalue() == "here\n"
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    ddp.print("nowhere")
    assert stream.getvalue() == "here\n"


@pytest.mark.parametrize("wraps", [0, 1, 2])
def test_module_prefixes_are_taken_off(wraps):
    bare = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    wrapped = bare
    for _ in range(wraps):
        wrapped = nn.DataParallel(wrapped)
    state = wrapped.state_dict()
    before = list(state)
    stripped = ddp.strip_module_prefix(state)
    assert list(state) == before and type(stripped) is OrderedDict
    assert list(stripped) == list(bare.state_dict())
    assert stripped._metadata == bare.state_dict()._metadata
    assert ddp.strip_module_prefix(dict(state)) == {key: stripped[key] for key in stripped}


def test_keys_that_are_the_models_own_stay():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = nn.Linear(1, 1)

    bare = Holder()
    for wrapped in (bare, ddp.DistributedDataParallel(bare)):
        assert list(ddp.strip_module_prefix(wrapped.state_dict(), bare)) == ["module.weight", "module.bias"]
    mixed = {"module.a": 1, "head": 2}
    assert ddp.strip_module_prefix(mixed) is mixed
    for other in ({}, [1], None, {1: 2}):
        assert ddp.strip_module_prefix(other) is other
