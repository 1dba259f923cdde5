"""Converts checkouts of public programs with the real command, and measures what came of it.

    python -m tests.corpus CHECKOUTS [--json FILE] [--reasons FILE] [--only WORD] [--force]

``CHECKOUTS`` holds a folder ``owner+name`` for every repository of ``scripts.txt``. pytest does not run this: the
checkouts are not here. Every script is converted on its own, into a copy; nothing is written to the checkouts. With
``--force`` the rewriting is measured where the analysis refuses, too.
"""
