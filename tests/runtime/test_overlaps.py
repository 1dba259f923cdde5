"""Files that several ranks write, where nothing in the source says so, are noticed."""

import re

import jobs
import pytest

SCRIPT = """
    {ahead}


    def main():
        rank = ddp.get_rank()
        {body}


    ddp.launch(main)
    """


def said(tmp_path, body, ahead=""):
    """What the ranks say of a program with ``body``: the rank, the file and the line."""
    script = jobs.write(tmp_path, SCRIPT.format(body=body.replace("\n", "\n        "), ahead=ahead))
    result = jobs.run([script], tmp_path)
    assert result.code == 0, result.err
    return [
        (
            file,
            tmp_path.joinpath(place.partition(":")[0])
            .read_text()
            .splitlines()[int(place.partition(":")[2]) - 1],
        )
        for file, place in re.findall(r"rank \d writes (\S+) at (\S+), and so does another rank", result.err)
    ]


def test_a_file_that_all_ranks_write_is_named_once(tmp_path):
    body = 'for i in range(3):\n    with open("log.txt", "a") as file:\n        file.write("x")'
    assert [(file, line.strip()) for file, line in said(tmp_path, body)] == [
        ("log.txt", 'with open("log.txt", "a") as file:')
    ]


@pytest.mark.slow
def test_what_a_package_writes_is_named_at_the_line_that_calls_it(tmp_path):
    package = tmp_path / "site-packages" / "tables.py"
    package.parent.mkdir()
    package.write_text("def to_text(path):\n    with open(path, 'w') as file:\n        file.write('x')\n")
    ahead = "sys.path.append('site-packages')\n    import tables"
    body = 'tables.to_text("table.txt")'
    assert [(file, line.strip()) for file, line in said(tmp_path, body, ahead)] == [("table.txt", body)]


@pytest.mark.sample(every=6)
@pytest.mark.parametrize(
    "body",
    [
        'with open(f"log{rank}.txt", "w") as file:\n    file.write("x")',
        'with ddp.open("log.txt", "w") as file:\n    file.write("x")',
        'with ddp.main_process_first():\n    with open("log.txt", "w") as file:\n        file.write("x")',
        'if rank == 1:\n    open("log.txt", "w").close()',
        'ddp.save([1], "model.pt")\nddp.barrier()\ntorch.load("model.pt")',
        'os.makedirs("folder", exist_ok=True)\nopen(os.devnull, "w").close()',
    ],
)
def test_what_one_rank_writes_or_all_in_turn_is_right(tmp_path, body):
    assert said(tmp_path, body) == []


@pytest.mark.slow
def test_a_checkpoint_that_all_ranks_save_is_named(tmp_path):
    assert [file for file, _ in said(tmp_path, 'torch.save([1], "model.pt")')] == ["model.pt"]


def test_what_is_written_past_save_is_seen(tmp_path):
    body = 'ddp.save([1], "model.pt")\nddp.barrier()\nif rank == 1:\n    open("model.pt", "wb").close()'
    assert [file for file, _ in said(tmp_path, body)] == ["model.pt"]
