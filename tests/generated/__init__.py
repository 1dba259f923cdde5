"""Ordinary training programs, put together at random from what people write, converted, run and compared.

``python -m tests.generated --count 200 --seed 1``. A program is a ``flat`` script, or ``shaped``: a task of ``tasks``
in functions, classes, closures or several files.
"""
