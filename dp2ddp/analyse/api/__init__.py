"""The registry of what torch, numpy, Python and common packages do: tables of names, by field.

A table says in one line what membership means. It holds that alone: what a rule or a proof makes of it stands where the
rule is. A name has one home; another question about the same names is another table, made of the first where it can be.
``tests/test_api.py`` and ``tests/test_operations.py`` run the rows; ``tests/test_layers.py`` finds sets of names that
stand anywhere else in the analysis.
"""
