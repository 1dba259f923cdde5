"""The losses of torch that are a mean over the samples: a table; ``tests/test_operations.py`` runs every row."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    """A loss, as a function and as a layer: a mean over the samples, or the sum over them, as its reduction says.

    ``by_number``: whether every number counts by itself, in whatever dimensions the samples are. ``tensors``: the
    parameters that may have a row for each sample, in order; ``second``: that of them which has the samples in
    dimension 1, ``joined``: that which may have all samples' numbers one after the other. ``reduction``: where the
    reduction stands among the arguments of the function, and of the layer.
    """

    name: str
    layer: str
    by_number: bool = False
    tensors: tuple[str, ...] = ("input", "target")
    second: str = ""
    joined: str = ""
    reduction: tuple[int, int] | None = None


PAIRS = ("input1", "input2", "target")
CTC = ("log_probs", "targets", "input_lengths", "target_lengths")
LOSSES = (
    Loss("cross_entropy", "CrossEntropyLoss"),
    Loss("nll_loss", "NLLLoss"),
    Loss("mse_loss", "MSELoss", by_number=True),
    Loss("l1_loss", "L1Loss", by_number=True),
    Loss("smooth_l1_loss", "SmoothL1Loss", by_number=True),
    Loss("huber_loss", "HuberLoss", by_number=True),
    Loss("binary_cross_entropy", "BCELoss", by_number=True),
    Loss("binary_cross_entropy_with_logits", "BCEWithLogitsLoss", by_number=True),
    Loss("soft_margin_loss", "SoftMarginLoss", by_number=True),
    Loss("poisson_nll_loss", "PoissonNLLLoss", by_number=True),
    Loss("hinge_embedding_loss", "HingeEmbeddingLoss", by_number=True),
    Loss("kl_div", "KLDivLoss"),
    Loss("gaussian_nll_loss", "GaussianNLLLoss", tensors=("input", "target", "var")),
    Loss("multilabel_margin_loss", "MultiLabelMarginLoss"),
    Loss("multilabel_soft_margin_loss", "MultiLabelSoftMarginLoss"),
    Loss("multi_margin_loss", "MultiMarginLoss"),
    Loss("margin_ranking_loss", "MarginRankingLoss", by_number=True, tensors=PAIRS),
    Loss("cosine_embedding_loss", "CosineEmbeddingLoss", tensors=PAIRS),
    Loss("triplet_margin_loss", "TripletMarginLoss", tensors=("anchor", "positive", "negative")),
    # Each loss is divided by the length of its target.
    Loss("ctc_loss", "CTCLoss", tensors=CTC, second="log_probs", joined="targets", reduction=(5, 1)),
)

# Losses that are a mean over the samples unless told otherwise, with their functional forms.
MEANS = {loss.layer: loss.name for loss in LOSSES}
BY_NAME = {name: loss for loss in LOSSES for name in (loss.layer, loss.name)}
LOSS_CLASSES = frozenset(f"torch.nn.{name}" for name in MEANS)
LOSS_FUNCTIONS = frozenset(f"torch.nn.functional.{name}" for name in MEANS.values())
# Those in which every number counts by itself, whatever dimension it stands in.
ELEMENTWISE = frozenset(name for name, loss in BY_NAME.items() if loss.by_number)
# Arguments that make the mean weighted, so that parts of a batch no longer count by their number of samples.
WEIGHTED = {"weight": "class weights", "ignore_index": "ignore_index"}
# Arguments that weigh, and may be tensors.
WEIGHTS = ("weight", "pos_weight")
# Those that know a mean over the samples of the sums of their numbers; those of two classes; those that ignore some.
BATCH_MEANS = frozenset({"KLDivLoss", "kl_div"})
BCE = frozenset("BCEWithLogitsLoss binary_cross_entropy_with_logits BCELoss binary_cross_entropy".split())
IGNORES = frozenset({"CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss"})
# Those that take a label for each row, and no fewer.
OF_PAIRS = IGNORES | BCE
# How the names of losses end.
ENDINGS = ("Loss", "_loss")
# The values of ``reduction`` that give one number, and all.
REDUCED = frozenset({"mean", "sum"})
REDUCTIONS = REDUCED | {"none"}
