"""What usually causes a difference."""

from __future__ import annotations

CAUSES = {
    "batch size": "Each process takes the whole batch size, so the global batch is as many times larger: divide it by "
    "the number of processes (ddp.local_batch_size).",
    "sampler": "The processes draw the same samples: the loader needs a DistributedSampler, or ddp.shard(loader).",
    "seed": "The processes draw by seeds of their own, so that samples come twice or never: the order must be one "
    "for all (DistributedSampler(seed=ddp.shared_seed()), or ddp.shard(loader)).",
    "set_epoch": "sampler.set_epoch(epoch) is missing: a DistributedSampler then deals every epoch in the same order.",
    "shuffle": "One of the programs shuffles and the other does not: DistributedSampler shuffles unless it is told "
    "shuffle=False.",
    "last batch": "The end of the epoch is cut otherwise: drop_last belongs to the sampler and to the loader, and "
    "padding rounds up.",
    "reduction": "The loss is a sum over the samples, and each process has the sum of its part, which is then "
    "averaged: multiply it by the number of processes (ddp.batch_loss(loss, reduction='sum')).",
    "weights": "The loss is a mean that does not count every sample the same (class weights, ignore_index): each "
    "process divides by the weights of its own part (ddp.batch_loss(loss, ddp.loss_weight(criterion, target))).",
    "whole-batch loss": "The loss compares samples of the whole batch with each other, and each process sees its part "
    "only: gather the rows with their graph first (ddp.whole_batch), or use ddp.DataParallel.",
    "uneven parts": "The processes' parts of this batch differ in size and count the same: weigh each loss by its part "
    "(ddp.shard and ddp.DistributedDataParallel do).",
    "unsynchronised": "The gradients differ between the processes: nothing averages them. Is the model wrapped in "
    "DistributedDataParallel, and does every step's backward pass run outside of no_sync()?",
    "bypassed forward": "The model is called past its wrapper (model.module(x), model.forward(x), a method): torch's "
    "DistributedDataParallel then does not average its gradients.",
    "attributes": "The model's forward stores attributes or replaces buffers (self.step += 1), and the next one finds "
    "them. nn.DataParallel's replicas forget them after each forward, as ddp.DistributedDataParallel does; torch's "
    "does not: set them outside of the forward.",
    "unwrapped head": "Trained parameters are outside of every wrapper (a head, a loss with parameters): nothing "
    "averages their gradients. Wrap them, too, or give their module to ddp.sync_gradients.",
    "gradient factor": "The gradients are a constant factor off: they are averaged where they were added, or scaled "
    "once too often.",
    "gradient": "The gradients are averaged, but not those of the original's step: something changes them before "
    "(clipping or hooks before the average), or a part of the loss is weighed otherwise.",
    "learning rate": "The learning rate is another: it is scaled, or its scheduler runs more or less often.",
    "optimizer": "The optimizer makes another step of the same gradients: other options, or other parameter groups.",
    "options": "The optimizer has other options, or other groups of parameters.",
    "frozen": "A parameter is trained in one of the programs only (requires_grad).",
    "steps": "An optimizer is not stepped, or in another order.",
    "replica": "The processes train different models: each writes a parameter from its own part of the data or from "
    "random numbers of its own, in a forward (ddp.DistributedDataParallel takes rank 0's, torch's does not) or outside "
    "of one; or an optimizer steps on some of them only.",
    "start": "The models differ before the first step: the seed is another, or random numbers were drawn before.",
    "buffers": "Layers that normalise over the batch see other samples, or their buffers are not those of the first "
    "process: SyncBatchNorm is not DataParallel's BatchNorm, and only rank 0's buffers count.",
    "random": "The samples or the model's random numbers differ: something random that could not be aligned.",
    "streams": "The processes draw the same random numbers for different samples, where the original draws new ones "
    "for each: seed the loader's workers and the generators by rank, after the model is made "
    "(ddp.DistributedDataParallel and loaders with a DistributedSampler do), or draw with ddp.local_random.",
    "decision": "A process decides by a number of its own part (early stopping, a NaN check): let it come from all.",
    "checkpoint keys": "Checkpoints have other keys: save model.module.state_dict(), and take off what other "
    "wrappers add.",
    "files": "Files are written otherwise: writing belongs to the main process (ddp.save, ddp.is_main_process()).",
    "evaluation": "The evaluation computes something else with the same weights: on its part of the data only, or "
    "with buffers that are not rank 0's.",
    "contents": "What is written is computed otherwise: of one process's part of the data (an evaluation, a sum "
    "or mean that is not combined: ddp.sum, ddp.mean, ddp.gather), or with buffers that are not rank 0's.",
    "collective": "A collective is called by some processes only: under a condition that differs between them "
    "(if ddp.is_main_process()), or after one of them has ended.",
    "curve": "The steps are others on average: batch size, reduction, learning rate, or a loss over the whole batch. "
    "Without --as-is the first difference is named.",
    "error": "The converted program fails where the original does not.",
}
