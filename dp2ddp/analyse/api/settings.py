"""Options and configurations: the methods and arguments of what declares, reads and changes them."""

from __future__ import annotations

from dp2ddp.analyse.api.containers import CHANGES, LIST_CHANGES

# Decorators that declare options.
DECLARES = frozenset({"click.argument", "click.option"})
# The values of ``action`` by which an option takes no value; those of ``nargs`` by which it takes one or none.
FLAGS = frozenset({"store_true", "store_false", "store_const", "count", "append_const"})
OPTIONAL = frozenset({"?", "*"})
# Methods that set the entries of configurations.
CONFIGURES = frozenset("merge_from_file merge_from_list merge_from_other_cfg merge_with set_defaults".split())
# Methods that change what a list, a dict or a configuration holds, whatever is done with what they return.
FILLS_SETTINGS = (
    CHANGES | LIST_CHANGES | CONFIGURES | frozenset("read read_dict read_file read_string".split())
)
