"""Ranks that nobody seeded draw the same; what the user seeded stays."""

from jobs import run, write

DRAWS = """
import random
import numpy
{seeding}
ddp.init()
drawn = [torch.rand(1).item(), random.random(), numpy.random.rand(), ddp.shared_seed() % 1000]
split = torch.utils.data.random_split(range(100), [50, 50])[0].indices[:5]
both = ddp.gather((drawn, split))
ddp.print(both[0] == both[-1], both[0])
"""


def test_ranks_agree_where_nothing_is_seeded(tmp_path):
    script = write(tmp_path, DRAWS.format(seeding=""))
    first, second = run([script], tmp_path), run([script], tmp_path)
    assert first.code == second.code == 0, first.err
    assert first.out.startswith("True") and second.out.startswith("True")
    assert first.out != second.out


def test_what_is_seeded_stays(tmp_path):
    seeding = "torch.manual_seed(5); random.seed(6); numpy.random.seed(7)"
    script = write(tmp_path, DRAWS.format(seeding=seeding))
    two, one = run([script], tmp_path), run([script], tmp_path, processes=1)
    assert two.code == one.code == 0, two.err + one.err
    expected = "import torch, random, numpy\n" + seeding
    expected += "\nprint([torch.rand(1).item(), random.random(), numpy.random.rand(), 5])"
    (tmp_path / "plain.py").write_text(expected)
    plain = run([tmp_path / "plain.py"], tmp_path, processes=None)
    assert plain.out.strip() in two.out
    assert two.out.startswith("True")
