"""Where options come from, and what lets a command line choose the functions that run."""

from __future__ import annotations

# Where options come from: what reads the command line or a file of settings, and the objects that hold them.
GIVEN = "command line.option"
OPTIONS = (
    GIVEN,
    "absl.flags.",
    "addict.",
    "argparse.",
    "attrdict.",
    "box.",
    "configargparse.",
    "configparser.",
    "docopt.",
    "easydict.",
    "json.",
    "jsonargparse.",
    "ml_collections.",
    "munch.",
    "omegaconf.",
    "pyhocon.",
    "toml.",
    "tomllib.",
    "types.SimpleNamespace",
    "tyro.",
    "yacs.",
    "yaml.",
)
# What returns the options that the program declares itself: nothing else has a name there.
PARSES = frozenset({"argparse.ArgumentParser.parse_args"})
# How the names of parsed options end, whichever parser made them.
PARSED = (".parse_args", ".parse_known_args.[]")
# What lets the command line choose among the functions that it is given, and calls them.
COMMANDS = {
    "argh.dispatch_command",
    "argh.dispatch_commands",
    "clize.run",
    "defopt.run",
    "fire.Fire",
    "fire.core.Fire",
    "jsonargparse.CLI",
    "jsonargparse.auto_cli",
    "plac.call",
    "typer.run",
    "tyro.cli",
}
# Decorators that call the function they are given.
RUNNING_DECORATORS = {"sacred.Experiment.automain"}
# Decorators whose functions are given options; the configuration that one gives.
OFFERED = ("click.", "cyclopts.", "rich_click.", "sacred.", "typer.")
CONFIGURED = {"hydra.main": "omegaconf.DictConfig"}
