"""torch.distributed.launch's ``--local-rank``: taken from the arguments unless the program's parser declares it."""

import argparse
import sys

import pytest
from jobs import run, write

from dp2ddp.runtime.arguments import take_local_rank


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--local-rank=1"], {}),  # the program's own
        (["--local-rank=1"], {"RANK": "1", "LOCAL_RANK": "0"}),
        (["x", "--local-rank=1"], {"RANK": "1", "LOCAL_RANK": "1"}),
        (["--local-rank", "1"], {"RANK": "1", "LOCAL_RANK": "1"}),
        ([], {"RANK": "1", "LOCAL_RANK": "1"}),
    ],
)
def test_what_the_launcher_did_not_pass_stays(monkeypatch, arguments, variables):
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    parse = argparse.ArgumentParser.parse_known_args
    take_local_rank()
    assert sys.argv == ["train.py", *arguments] and argparse.ArgumentParser.parse_known_args is parse


def test_the_launchers_argument_goes_to_parsers_that_declare_it(tmp_path):
    write(
        tmp_path,
        """
        import argparse
        assert sys.argv[1:] == ["--epochs", "3", "data"], sys.argv

        def parser(*names, **more):
            made = argparse.ArgumentParser()
            made.add_argument("--epochs", type=int)
            made.add_argument("data")
            if names:
                made.add_argument(*names, type=int, **more)
            return made

        expected = int(os.environ["LOCAL_RANK"])
        plain = parser().parse_args()
        assert vars(plain) == {"epochs": 3, "data": "data"}
        assert parser().parse_known_args()[1] == []
        for names in (["--local_rank"], ["--local-rank"], ["--local-rank", "--local_rank"], ["-r", "--local_rank"]):
            for given in ([], [sys.argv[1:]]):
                assert parser(*names, required=True).parse_args(*given).local_rank == expected
                assert parser(*names).parse_known_args(*given)[0].local_rank == expected
                assert parser(*names).parse_intermixed_args(*given).local_rank == expected
        assert parser("--local_rank", default=-1).parse_args(["other"]).local_rank == -1
        ddp.init()
        assert ddp.get_local_rank() == expected and ddp.get_world_size() == 2
        sys.stdout.write("done" + os.linesep)
        """,
    )
    launcher = ["-m", "torch.distributed.launch", "--standalone", "--nproc-per-node", "2"]
    result = run([*launcher, "train.py", "--epochs", "3", "data"], tmp_path)
    assert result.code == 0 and result.out.split() == ["done", "done"], result.err
