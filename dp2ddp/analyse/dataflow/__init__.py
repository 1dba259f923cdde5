"""Values followed from the batch to the loss: what each is to the samples of the batch."""
