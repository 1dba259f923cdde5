"""Files and folders: what opens, reads, writes and asks for them; trackers and writers; paths."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass

# Opening

# Python's own, and whatever else opens a file by the path that it is given first, or is a method of.
BUILTIN_OPENERS = frozenset({"builtins.open", "io.open"})
OPENERS_BY_PATH = BUILTIN_OPENERS | frozenset("""
    codecs.open gzip.open bz2.open lzma.open dp2ddp.runtime.open
    """.split())
PATH_OPENERS = frozenset({"pathlib.Path.open"})
# What takes away files and folders.
REMOVES = frozenset("""
    os.remove os.unlink os.rmdir os.removedirs os.rename os.replace shutil.move shutil.rmtree
    pathlib.Path.unlink pathlib.Path.rename pathlib.Path.replace pathlib.Path.rmdir
    """.split())
OPENERS = OPENERS_BY_PATH | PATH_OPENERS


@dataclass(frozen=True)
class Mode:
    """Where a call is told whether it writes: the letters of a mode that say so, and what holds where none is given."""

    keyword: str = "mode"
    place: int = 1
    writes: str = "wax+"
    default: str = "r"


# What makes an object that writes where its mode says so, beside Python's own: files, and stores of values by keys.
KEY_STORES = {
    "shelve.open": Mode("flag", writes="cnw", default="c"),
    "dbm.open": Mode("flag", writes="cnw"),
    "dbm.dumb.open": Mode("flag", writes="cnw", default="c"),
}
MODES = {
    **dict.fromkeys(
        """
        codecs.open gzip.open gzip.GzipFile bz2.open bz2.BZ2File lzma.open lzma.LZMAFile h5py.File zipfile.ZipFile
        tarfile.open tarfile.TarFile tarfile.TarFile.open
        wave.open soundfile.SoundFile netCDF4.Dataset tables.open_file rasterio.open
        """.split(),
        Mode(),
    ),
    **KEY_STORES,
}
FILE_MODE = Mode()
# What of an open file, or of what writes rows into one, writes lines; the latter, by the beginning of its name.
WRITES_LINES = frozenset({"write", "writelines", "writerow", "writerows"})
WRITES_ROWS = ("csv.writer.", "csv.DictWriter.")
# What puts something under a key of a store.
CHANGES_STORE = frozenset({"update", "setdefault", "pop", "popitem", "clear"})
# Databases in a file, by the beginning of the names; what of a connection or cursor runs statements, or ends them.
MAKES_DATABASES = frozenset({"sqlite3.connect"})
DATABASES = tuple(f"{name}." for name in MAKES_DATABASES)
STATEMENTS = frozenset({"execute", "executemany", "executescript", "commit"})
# The statements that only read.
READS_ROWS = re.compile(r"\s*(SELECT|WITH|PRAGMA|EXPLAIN|ATTACH|VALUES)\b", re.IGNORECASE)
# Where those and Python's own are given the path.
OPENED_PATHS = {
    **dict.fromkeys(BUILTIN_OPENERS | {"dp2ddp.runtime.open", "zipfile.ZipFile"}, ("file", 0)),
    **dict.fromkeys(
        """
        codecs.open gzip.open gzip.GzipFile bz2.open bz2.BZ2File lzma.open lzma.LZMAFile netCDF4.Dataset
        tables.open_file
        """.split(),
        ("filename", 0),
    ),
    "h5py.File": ("name", 0),
    "wave.open": ("f", 0),
    "soundfile.SoundFile": ("file", 0),
    "rasterio.open": ("fp", 0),
    **dict.fromkeys(("tarfile.open", "tarfile.TarFile", "tarfile.TarFile.open"), ("name", 0)),
    **{name: ("filename" if name == "shelve.open" else "file", 0) for name in KEY_STORES},
    "sqlite3.connect": ("database", 0),
}
# What leads nowhere, as it is written.
NOWHERE = frozenset({"os.devnull", "'/dev/null'"})
# What makes a file or folder of a process's own, by the beginning of its name.
TEMPORARY = (
    *("tempfile.", "io.BytesIO", "io.StringIO"),
    *("StringIO.StringIO", "cStringIO.StringIO", "six.BytesIO", "six.StringIO", "six.moves.StringIO"),
)
# What makes a temporary file, and answers with a handle of it and its path.
OPENS_TEMPORARY = frozenset({"tempfile.mkstemp"})
# What names the folder that the processes of a machine have them in: one for all.
TEMPORARY_FOLDER = frozenset({"tempfile.gettempdir", "tempfile.gettempdirb"})

# Asking

# What asks whether a file or folder is there.
EXISTENCE = frozenset("""
    os.path.exists os.path.isdir os.path.isfile os.path.lexists
    pathlib.Path.exists pathlib.Path.is_dir pathlib.Path.is_file
    """.split())
# The exceptions that say that a file is not there.
NO_FILE = frozenset({"OSError", "IOError", "FileNotFoundError", "EnvironmentError"})
# The exceptions that may say that one is there already.
IS_THERE = frozenset({"OSError", "IOError", "FileExistsError", "EnvironmentError", "Exception"})
# What makes a folder or a file with nothing in it, and may say that one is there.
MAKES_EMPTY = frozenset({"os.makedirs", "os.mkdir", "pathlib.Path.mkdir", "pathlib.Path.touch"})
# What lists a folder: what that holds changes while the main process writes into it.
LISTS_FOLDER = frozenset("""
    glob.glob glob.iglob os.listdir os.scandir pathlib.Path.glob pathlib.Path.rglob pathlib.Path.iterdir
    """.split())
# What lists it step by step, and what is below it.
WALKS_FOLDERS = frozenset({"os.walk", "os.fwalk", "pathlib.Path.walk"})
# What hands these names out one by one: no process can send it to others.
LISTS_STEPWISE = WALKS_FOLDERS | {
    *("glob.iglob", "os.scandir", "pathlib.Path.glob", "pathlib.Path.rglob", "pathlib.Path.iterdir")
}
# Data sets that list the folder which they are given when they are made.
FOLDER_SETS = frozenset({"torchvision.datasets.ImageFolder", "torchvision.datasets.DatasetFolder"})
# What lists the paths of what it is given the pattern of.
LISTS_PATHS = frozenset({"glob.glob", "glob.iglob"})
# How the names begin of what asks for files and folders.
ASKS_FILES = ("os.path.", "pathlib.Path.", "os.listdir", "glob.")
# What runs a command, and answers with what that says.
ANSWERS_OF_COMMANDS = frozenset(
    {"subprocess.check_output", "subprocess.getoutput", "subprocess.getstatusoutput"}
)
# What begins like a write, and only answers.
ONLY_ANSWERS = ANSWERS_OF_COMMANDS | frozenset("""
    shutil.which shutil.disk_usage wandb.util.generate_id
    """.split())

# Paths

# What makes a path, or opens one, that begins with the first thing it is given, by the beginning of its name.
PATHS = ("os.path.", "os.fspath", "os.fdopen", "pathlib.", "builtins.str", *sorted(OPENERS_BY_PATH))
# What hands out what is in a file, and not the file.
CONTENTS = frozenset("read readline readlines getvalue getbuffer read_text read_bytes".split())
# What of a path is a path.
PATH = "pathlib.Path"
GIVES_PATH = frozenset("""
    absolute cwd expanduser home joinpath parent relative_to rename replace resolve with_name with_stem with_suffix
    """.split())
# What makes a path of parts.
JOINS_PATHS = frozenset({"os.path.join", "pathlib.Path"})
# What makes of one path another form of it.
SAME_PATH = frozenset(
    "pathlib.Path os.fspath os.path.join os.path.abspath os.path.normpath builtins.str".split()
)
# How those are written at the end.
JOINS_PATHS_AS = ("path.join", "Path")
# What makes a part of a path of others, by the beginning of its name; and what of these hands out something else.
PATH_PARTS = ("builtins.", "os.path.", "os.fspath", "pathlib.", "datetime.", "time.", "re.", "uuid.")
NO_PATH_PARTS = frozenset({"builtins.open"})
# The arguments that take the path of a file or folder that is made.
PATH_ARGUMENTS = frozenset({"f", "file", "name", "log_dir", "logdir"})

# Reading

# What loads whole what a program has saved: where it is given the path, by keyword and by place.
LOADED_PATHS = {
    "torch.load": ("f", 0),
    "numpy.load": ("file", 0),
    "numpy.loadtxt": ("fname", 0),
    "pickle.load": ("file", 0),
    "json.load": ("fp", 0),
    "joblib.load": ("filename", 0),
    "yaml.safe_load": ("stream", 0),
}
# What reads a file, too: apart, since only what is known to be the file that the program writes counts for these.
READ_PATHS = {
    "numpy.genfromtxt": ("fname", 0),
    "numpy.fromfile": ("file", 0),
    "pandas.read_csv": ("filepath_or_buffer", 0),
    "pandas.read_table": ("filepath_or_buffer", 0),
    "pandas.read_json": ("path_or_buf", 0),
    "pandas.read_pickle": ("filepath_or_buffer", 0),
    "pandas.read_excel": ("io", 0),
    "pandas.read_parquet": ("path", 0),
    "pandas.read_feather": ("path", 0),
    "pandas.read_hdf": ("path_or_buf", 0),
    "yaml.load": ("stream", 0),
    "cPickle.load": ("file", 0),
    "dill.load": ("file", 0),
    "cloudpickle.load": ("file", 0),
    "scipy.io.loadmat": ("file_name", 0),
    "scipy.sparse.load_npz": ("file", 0),
    "scipy.io.wavfile.read": ("filename", 0),
    "safetensors.torch.load_file": ("filename", 0),
    "torch.jit.load": ("f", 0),
    "torch.export.load": ("f", 0),
}
LOADS = frozenset(LOADED_PATHS)
# What loads the settings of a program.
LOADS_SETTINGS = frozenset({"json.load", "yaml.load", "yaml.safe_load", "yaml.full_load", "toml.load"})
# What may have written a file that they can read, by the beginning of its name; what copies and fetches aside.
WRITTEN_BY = {
    "torch.load": ("torch.", "dp2ddp."),
    "numpy.load": ("numpy.", "pickle.", "cPickle."),
    "numpy.loadtxt": ("numpy.", "pandas."),
    "pickle.load": ("pickle.", "cPickle.", "dill.", "cloudpickle.", "pandas.", "joblib."),
    "json.load": ("json.", "pandas."),
    "joblib.load": ("joblib.", "pickle.", "cPickle.", "numpy."),
    "yaml.safe_load": ("yaml.", "json."),
}
READS = frozenset(READ_PATHS) | {"pathlib.Path.read_text", "pathlib.Path.read_bytes"}
# What reads a picture: apart, since data sets do, of files that no program writes.
PICTURE_PATHS = {
    **dict.fromkeys(
        ("matplotlib.pyplot.imread", "matplotlib.image.imread", "skimage.io.imread"), ("fname", 0)
    ),
    **dict.fromkeys(("imageio.imread", "imageio.v2.imread", "imageio.v3.imread"), ("uri", 0)),
    "cv2.imread": ("filename", 0),
    "PIL.Image.open": ("fp", 0),
    "torchvision.io.read_image": ("path", 0),
}
READS_PICTURES = frozenset(PICTURE_PATHS)
# What no text file can be read by.
LOADS_BINARY = READS_PICTURES | frozenset("""
    torch.load torch.jit.load numpy.load pickle.load cPickle.load dill.load cloudpickle.load joblib.load
    """.split())
# What stands for any characters in a path.
ANY_CHARACTERS = "*"
# The paths that have nothing to do with what a program writes: those of its own files, of the user.
EVERYWHERE = ("__file__", "getcwd(", "expanduser(", ".home(")

# Writing

SAVES = frozenset({"torch.save", "dp2ddp.runtime.save"})
# What pickles its first argument: into the file that it is given second, or into bytes.
PICKLES_TO_FILES = frozenset("""
    pickle.dump cPickle.dump dill.dump cloudpickle.dump joblib.dump
    """.split())
PICKLES = PICKLES_TO_FILES | frozenset("pickle.dumps cPickle.dumps dill.dumps cloudpickle.dumps".split())
# What writes a whole file: where it is given the path, by keyword and by place.
WRITTEN_PATHS = {
    **dict.fromkeys(SAVES, ("f", 1)),
    **dict.fromkeys(PICKLES_TO_FILES - {"joblib.dump"}, ("file", 1)),
    "joblib.dump": ("filename", 1),
    "json.dump": ("fp", 1),
    "yaml.dump": ("stream", 1),
    "yaml.safe_dump": ("stream", 1),
    "numpy.save": ("file", 0),
    "numpy.savez": ("file", 0),
    "numpy.savez_compressed": ("file", 0),
    "numpy.savetxt": ("fname", 0),
    "scipy.io.savemat": ("file_name", 0),
    "scipy.sparse.save_npz": ("file", 0),
    "scipy.io.wavfile.write": ("filename", 0),
    "safetensors.torch.save_file": ("filename", 1),
    "torch.jit.save": ("f", 1),
    "torch.export.save": ("f", 1),
    "shutil.copy": ("dst", 1),
    "shutil.copy2": ("dst", 1),
    "shutil.copyfile": ("dst", 1),
    "shutil.copytree": ("dst", 1),
    "shutil.move": ("dst", 1),
    "os.rename": ("dst", 1),
    "os.replace": ("dst", 1),
    "os.symlink": ("dst", 1),
    "os.link": ("dst", 1),
}
# What writes a picture, and is not given its path first.
PICTURES_WRITTEN = {"torchvision.utils.save_image": ("fp", 1)}
# The ending that some of them may add to it.
ADDED_ENDINGS = {
    "numpy.save": ".npy",
    "numpy.savez": ".npz",
    "numpy.savez_compressed": ".npz",
    "scipy.io.savemat": ".mat",
    "scipy.sparse.save_npz": ".npz",
}
# All that is given the path of a file that it reads or writes.
FILE_PATHS = {
    **OPENED_PATHS,
    **LOADED_PATHS,
    **READ_PATHS,
    **PICTURE_PATHS,
    **WRITTEN_PATHS,
    **PICTURES_WRITTEN,
}
# What is given two places, and writes to the second or to both, by the beginning of its name.
BETWEEN_PATHS = ("shutil.copy", "shutil.move", "os.rename", "os.replace", "os.symlink", "os.link")
# Those that leave the first place as it is.
COPIES_FILES = ("shutil.copy",)
# What copies all that is in a folder.
COPIES_FOLDERS = frozenset({"shutil.copytree"})
# What runs a command that may write a file which it is told.
RUNS_COMMANDS = frozenset("""
    os.system subprocess.run subprocess.call subprocess.check_call
    """.split()) | ANSWERS_OF_COMMANDS
# What goes on beside the program, until that waits for it.
STARTS_COMMANDS = frozenset({"subprocess.Popen"})
# What makes one form of a command of another, as it is written; the methods of texts that do.
SAME_COMMAND_AS = frozenset({"shlex.split", "shlex.join", "shlex.quote", "str", "os.fspath"})
SAME_COMMAND_OF = frozenset({"split", "strip", "rstrip", "lstrip"})
# Commands that leave no file with something in it, by the names of the programs.
LEAVES_NOTHING = frozenset("""
    mkdir rmdir rm ls cat echo printf clear cls reset cd pwd sleep kill pkill killall chmod chown which export date
    hostname whoami nvidia-smi tensorboard
    """.split())
# Commands that take files or folders away.
REMOVING = frozenset({"rm", "rmdir", "mv", "unlink"})
# Commands that fetch or unpack what they do not name.
SHELL_UNPACKS = re.compile(
    r"(^|[\s;&|/])(unzip|gunzip|bunzip2|unxz|unrar|unar|(tar|bsdtar)\s+(-\S*|--)?x|7z\w?\s+x|wget|curl|gdown|git clone)"
)
# What moves the path that it is a method of to the one that it is given.
MOVES_PATH = frozenset({"pathlib.Path.rename", "pathlib.Path.replace"})
# What makes files or folders; what makes folders, and may be told that they are there.
MAKES = SAVES | MAKES_EMPTY
MAKES_FOLDERS = frozenset({"os.makedirs", "pathlib.Path.mkdir"})
# Methods of paths that change files or folders.
PATH_WRITES = frozenset("""
    mkdir write_text write_bytes touch unlink rename replace rmdir symlink_to hardlink_to chmod
    """.split())
# Those of them that write a whole file.
PATH_CONTENTS = frozenset({"pathlib.Path.write_text", "pathlib.Path.write_bytes"})
# Calls that write, by full name or, with a dot at the end, by its beginning.
WRITES = frozenset("""
    os.makedirs os.mkdir os.remove os.unlink os.rename os.replace os.rmdir os.removedirs os.symlink os.link os.system
    os.chmod os.chown os.truncate os.mkfifo shutil. subprocess. distutils. logging.config. loguru.logger.add
    numpy.save numpy.savez numpy.savez_compressed numpy.savetxt pickle.dump cPickle.dump json.dump
    torchvision.utils.save_image torchvision.io.write_png torchvision.io.write_jpeg torchvision.io.write_video
    torch.onnx.export torch.jit.save torch.export.save
    cv2.imshow matplotlib.pyplot.show matplotlib.pyplot.draw matplotlib.pyplot.pause
    requests.post requests.put smtplib.SMTP.sendmail smtplib.SMTP.send_message
    """.split())
# What the last part of the name of a call begins with that writes, if another library has it.
VERBS = re.compile(
    "(save|savemat|savefig|savetxt|imsave|imwrite|mimsave|mimwrite|write|dump|safe_dump|export)(?![a-z])"
    "|to_(csv|json|pickle|excel|hdf|parquet|html|latex|feather|netcdf|zarr|stata|sql|xml|file|filename|disk)$"
)
# Where such names have another meaning, or are in the list.
OTHER_VERBS = (
    "builtins.",
    "sys.",
    "io.",
    "os.",
    "torch.",
    "torchvision.",
    "numpy.",
    "tqdm.",
    "logging.",
    "dp2ddp.",
)
# Methods that write, by the class or function that makes the object and the method's name.
WRITING_METHODS = {
    "pathlib.": PATH_WRITES,
    "matplotlib.": {"show"},
    "plotly.": {"show"},
    "torch.jit.": {"save"},
    "torchvision.transforms.": {"save"},  # of the pictures that they make
}
# Methods that write whoever has them, if that is not one of the project's classes; `save` if it is given a path.
WRITING_ANYWAY = frozenset("""
    save_pretrained to_json_file savefig imsave imwrite to_csv to_pickle to_excel to_parquet to_filename to_disk
    tofile write_text write_bytes write_html write_image write_videofile export_chrome_trace
    unlink rmdir symlink_to hardlink_to
    """.split())
# Those of them that write data, which a program may read again, to the path that they are given first.
WRITING_DATA = frozenset("""
    to_json_file to_csv to_pickle to_excel to_parquet to_filename to_disk tofile write_text write_bytes
    """.split())
# What of all that leaves a file that a program may read again, by the beginning of its name.
LEAVES_FILES = (
    *("numpy.", "json.", "pandas."),
    *(f"{name.partition('.')[0]}." for name in sorted(PICKLES_TO_FILES)),
    *BETWEEN_PATHS,
)
# What acts on files or starts programs, and may answer, by the beginning of its name.
ACTS = ("os.", "subprocess.", "shutil.")
# What acts on files as a whole, and not on what is in them, by the beginning of its name.
ACTS_ON_FILES = ("os.", "shutil.")

# Writers

# Modules that are trackers themselves.
TRACKERS = frozenset("""
    wandb mlflow swanlab clearml trackio neptune comet_ml tensorboard_logger aim dvclive pycrayon
    """.split())
# Where trackers hold the settings of a run.
TRACKED_SETTINGS = frozenset(f"{tracker}.{name}" for tracker in TRACKERS for name in ("config", "run.config"))
# What makes an object that writes whenever it is used.
WRITERS = frozenset("""
    torch.utils.tensorboard.SummaryWriter torch.utils.tensorboard.FileWriter
    tensorboardX.SummaryWriter tensorboardX.FileWriter
    tensorflow.summary.FileWriter tensorflow.summary.create_file_writer tensorflow.compat.v1.summary.FileWriter
    visdom.Visdom torchnet.logger.VisdomLogger torchnet.logger.VisdomPlotLogger cox.store.Store
    logging.FileHandler logging.handlers.RotatingFileHandler logging.handlers.TimedRotatingFileHandler
    cv2.VideoWriter imageio.get_writer pandas.ExcelWriter subprocess.Popen
    """.split())
# What only logs, whatever it is called of, by the beginning of its name.
LOGS = ("logging.", "wandb.")
# What makes a picture of a tensor, or saves one, by the end of its name.
PICTURES = ("add_image", "add_images", "add_figure", "save_image", "imsave", "imwrite", "imshow", "savefig")
# What shows numbers in a progress bar, by the end of its name.
PROGRESS = (".set_postfix", ".set_description", ".set_postfix_str", ".set_description_str")
# The packages, beside Python's own, whose calls are known: those of them that read a file are listed here.
KNOWN_HOMES = frozenset({"builtins", "torch", "torchvision", "numpy", "dp2ddp"})
_HOMES = KNOWN_HOMES | sys.stdlib_module_names


def has_known_home(names: Iterable[str]) -> bool:
    """Whether any of some names is Python's own, or that of a package whose calls are known."""
    return any(it.partition(".")[0] in _HOMES for it in names)
