"""What makes the backward pass and the step in one call, as timm's scalers do."""

import torch


class NativeScaler:
    def __call__(self, loss, optimizer, clip_grad=None, parameters=None, create_graph=False):
        loss.backward(create_graph=create_graph)
        if clip_grad is not None:
            torch.nn.utils.clip_grad_norm_(parameters, clip_grad)
        optimizer.step()
