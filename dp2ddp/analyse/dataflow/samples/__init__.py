"""Values followed from the batch to the loss: what each is to the samples of the batch.

``follower`` asks, ``frames`` are the calls that it asks about. Each other module is given the follower, and knows one
thing: ``names``, ``loops`` and ``conditions``, ``functions`` (the project's) and ``calls`` (any), ``indices``,
``batches`` (what a batch is made of), ``parameters``; of torch, ``layers``, ``operations``, ``sizes`` and ``pairs``.
``writes`` knows what writes into a value: ``looks`` where, ``rounds`` in which loops, ``stores`` and ``rows`` what.
"""
