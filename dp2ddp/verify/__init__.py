"""Show that a converted program trains as it did: record runs of both, and compare what they did.

What runs inside the scripts, with torch and the standard library alone: ``record`` (the run itself), ``loaders``,
``forwards``, ``outputs``, ``digests``, ``reference``, ``cuda``, ``doubles`` and ``synthetic``. What starts them and
reads what they wrote: ``run``, ``jobs`` and ``server``, ``notes``, ``compare``, ``contents``, ``printed`` and
``causes``, ``report`` and ``page``.
"""
