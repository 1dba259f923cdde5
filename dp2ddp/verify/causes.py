"""What usually causes a difference."""

from __future__ import annotations

CAUSES = {
    "batch size": "Each rank uses the global batch size as its local one, so the global batch is "
    "world-size times larger: divide it (ddp.local_batch_size).",
    "sampler": "All ranks load the same samples: the loader needs a DistributedSampler, or ddp.shard(loader).",
    "seed": "The ranks shuffle with different seeds, so some samples come twice and others never: use "
    "DistributedSampler(seed=ddp.shared_seed()), or ddp.shard(loader).",
    "set_epoch": "sampler.set_epoch(epoch) is missing: without it a DistributedSampler uses the same "
    "order in every epoch.",
    "shuffle": "Only one of the two programs shuffles: DistributedSampler shuffles unless given shuffle=False.",
    "last batch": "The last batch of the epoch differs: give drop_last to the sampler and the loader; "
    "without it the sampler pads.",
    "reduction": "The loss is a sum over the samples, but gradients are averaged over the ranks: "
    "multiply it by the world size (ddp.batch_loss(loss, reduction='sum')).",
    "weights": "The loss is a weighted mean (class weights, ignore_index), and each rank divides by its "
    "local weight: ddp.batch_loss(loss, ddp.loss_weight(criterion, target)).",
    "whole-batch loss": "The loss compares samples of the global batch, but each rank has only its local "
    "batch: gather them with gradients (ddp.whole_batch), or use ddp.DataParallel.",
    "uneven parts": "Local batches differ in size but count equally: weight each rank's loss by its "
    "batch size (ddp.shard with ddp.DistributedDataParallel does).",
    "unsynchronised": "Gradients differ across ranks, so they are not all-reduced. Is the model wrapped "
    "in DistributedDataParallel, and is each step's last backward() outside no_sync()?",
    "bypassed forward": "The forward bypasses the wrapper (model.module(x), model.forward(x), a method), "
    "so DistributedDataParallel does not average its gradients.",
    "attributes": "The model's forward stores attributes or replaces buffers (self.step += 1), and the next one "
    "finds them. nn.DataParallel's replicas forget them: set them outside of the forward.",
    "unwrapped head": "Trained parameters are outside every wrapper (a head, a loss with parameters), so "
    "their gradients are not averaged: wrap them or use ddp.sync_gradients.",
    "gradient factor": "The gradients are off by a constant factor: averaged instead of summed, or scaled once too "
    "often. Check the loss's reduction and divisions by the world size.",
    "gradient": "The averaged gradients differ from the original's: they are changed before the all-reduce (hooks, "
    "clipping before the last backward()), or part of the loss is weighted differently. Change .grad after "
    "backward().",
    "learning rate": (
        "The learning rate differs: it is scaled, or its scheduler steps more or less often. Leave it as it was, "
        "and step the scheduler as often as before."
    ),
    "optimizer": "The optimizer makes a different step from the same gradients: compare its options and parameter "
    "groups with the original's.",
    "options": "The optimizer's options or parameter groups differ: give it those of the original.",
    "frozen": (
        "A parameter is trained in only one of the two programs: check requires_grad and what the optimizer is "
        "given."
    ),
    "steps": (
        "An optimizer does not step, or optimizers step in a different order: step them as in the original, on "
        "every rank."
    ),
    "replica": "The ranks' model replicas differ: a parameter is written from local data or random "
    "numbers (in a forward, ddp.DistributedDataParallel takes rank 0's), or an optimizer steps on some ranks only.",
    "start": (
        "The models differ before the first step: seed before the model is made, and draw no random numbers "
        "between."
    ),
    "buffers": "BatchNorm layers see other samples, or their buffers are not rank 0's: DataParallel "
    "keeps only its first replica's statistics, and SyncBatchNorm averages over all.",
    "random": (
        "The samples or the model's random numbers differ: something random could not be made equal. Seed it, or "
        "try --as-is, which compares loss curves."
    ),
    "streams": "All ranks draw the same random numbers for different samples: after the model is made, "
    "seed workers and generators by rank (ddp.DistributedDataParallel does), or draw with ddp.local_random.",
    "decision": "Control flow depends on a value of the local batch (early stopping, a NaN check): combine it over all "
    "ranks first, e.g. by ddp.mean(…).",
    "checkpoint keys": "Checkpoint keys differ: save model.module.state_dict(), and remove prefixes of other wrappers.",
    "files": "Files are missing, extra or written by several ranks: write on the main process only "
    "(ddp.save, ddp.is_main_process()).",
    "evaluation": "The evaluation gives another result with the same weights: it covers only a rank's "
    "shard of the data, or its buffers are not rank 0's.",
    "contents": "The written values differ: they cover one rank's shard of the data (combine by ddp.sum, "
    "ddp.mean, ddp.gather), or buffers are not rank 0's.",
    "parts": "The number is of rank 0's part of the batch only: combine it over the ranks (ddp.batch_loss, ddp.sum, "
    "ddp.whole_batch).",
    "collective": "Only some ranks call a collective (all-reduce, barrier, …): under a condition that "
    "differs across ranks (if ddp.is_main_process()), or one rank has ended.",
    "curve": "The loss curves differ on average: batch size, reduction, learning rate, or a loss over "
    "the global batch. Without --as-is the first difference is named.",
    "error": "The converted program fails where the original does not: see its error above.",
}
