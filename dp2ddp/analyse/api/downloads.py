"""What is fetched from elsewhere, unpacked or built: weights, data sets, archives, extensions."""

from __future__ import annotations

from dp2ddp.analyse.api.files import OPENERS

# What reads from the network, and what keeps in a file what is read there.
OPENS_URL = frozenset({"requests.get", "urllib.request.urlopen"})
STORES = OPENERS | {"shutil.copyfileobj", "shutil.copy", "shutil.move"}
# What downloads weights into torch.hub's cache.
HUB_FETCHES = frozenset("""
    torch.hub.load_state_dict_from_url torch.utils.model_zoo.load_url
    torchvision._internally_replaced_utils.load_state_dict_from_url
    torchvision.models.utils.load_state_dict_from_url
    """.split())
# What downloads into the file or folder that it is given.
FILE_FETCHES = frozenset("""
    torch.hub.download_url_to_file torchvision.datasets.utils.download_url
    torchvision.datasets.utils.download_and_extract_archive torchvision.datasets.utils.download_file_from_google_drive
    """.split())
# What downloads a file whether it is there or not.
DOWNLOADS_ANEW = frozenset("""
    urllib.request.urlretrieve gdown.download gdown.download_folder wget.download
    """.split())
FILE_FETCHES |= DOWNLOADS_ANEW
# All that downloads.
FETCHES = HUB_FETCHES | FILE_FETCHES | frozenset("""
    torch.hub.load huggingface_hub.hf_hub_download huggingface_hub.snapshot_download datasets.load_dataset
    gdown.cached_download pooch.retrieve nltk.download kagglehub.dataset_download kagglehub.model_download
    clip.load open_clip.create_model open_clip.create_model_and_transforms sentence_transformers.SentenceTransformer
    transformers.pipeline evaluate.load datasets.load_metric gensim.downloader.load tensorflow_datasets.load
    torchtext.vocab.GloVe torchtext.vocab.FastText torchtext.vocab.CharNGram
    """.split())
# Data sets that download, and put in order, what they hold when they are made: by the beginning of the name; and the
# classes that those of projects derive from.
PREPARED_SETS = ("torch_geometric.datasets.", "ogb.nodeproppred.", "ogb.linkproppred.", "ogb.graphproppred.")
PREPARED_SET_BASES = frozenset("""
    torch_geometric.data.Dataset torch_geometric.data.InMemoryDataset torch_geometric.data.OnDiskDataset
    dgl.data.DGLDataset
    """.split())
# What compiles an extension into a folder of the machine's, and loads it.
BUILDS = frozenset({"torch.utils.cpp_extension.load", "torch.utils.cpp_extension.load_inline"})
# What unpacks an archive.
UNPACKS = frozenset(
    f"{archive}.{extract}"
    for archive in (
        "zipfile.ZipFile",
        "tarfile.open",
        "tarfile.TarFile",
        "tarfile.TarFile.open",
        "py7zr.SevenZipFile",
        "rarfile.RarFile",
    )
    for extract in ("extractall", "extract")
)
UNPACKS |= {
    "shutil.unpack_archive",
    "patoolib.extract_archive",
    "torchvision.datasets.utils.extract_archive",
}
# Commands of a shell that fetch or unpack.
SHELL_FETCHES = ("wget", "curl", "gdown", "unzip", "tar -x", "tar x", "git clone")
# Libraries whose models and data sets download themselves where they are told to, by the beginning of their names;
# those of models alone; and the arguments that tell a model to.
DOWNLOADING_LIBRARIES = ("torchvision.", "timm.", "torchaudio.", "torchtext.")
MODEL_LIBRARIES = ("torchvision.models.", "timm.")
PRETRAINED = frozenset({"pretrained", "weights", "weights_backbone", "pretrained_backbone"})
# The classes that data sets derive from, in torch and torchvision.
DATA_SET_BASES = frozenset("""
    torch.utils.data.Dataset torchvision.datasets.VisionDataset torchvision.datasets.DatasetFolder
    torchvision.datasets.ImageFolder torchvision.datasets.MNIST torchvision.datasets.CIFAR10
    """.split())
# Where torchvision has its data sets, and those that ``verify --synthetic`` has small ones for.
DATA_SETS = "torchvision.datasets."
SYNTHETIC = frozenset("""
    MNIST FashionMNIST KMNIST QMNIST CIFAR10 CIFAR100 SVHN STL10 ImageFolder ImageNet
    """.split())
