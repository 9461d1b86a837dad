"""What `threading` and `logging` do around a fork, which the zygote's forks do without.

Both put right what other threads were doing while a process was forked: who of them is alive, and which locks they held. A zygote has one thread when it
forks, and nothing of Python's runs in it, so that there is nothing to put right; but to find that out has a fork copy a hundred pages. Forks that a
function makes itself are made as ever.
"""

import os
import sys

_is_zygotes = False


def _spared(hook):
    def unless_it_is_the_zygotes():
        if not _is_zygotes:
            hook()

    return unless_it_is_the_zygotes


def _register(register, hooks):
    register(**{when: _spared(hook) for when, hook in hooks.items()})


def _import():
    """Imports both, with their hooks. From 3.13 on, `threading` renews the thread's number there, too."""
    register = os.register_at_fork
    if sys.version_info < (3, 13):
        os.register_at_fork = lambda **hooks: _register(register, hooks)
    try:
        import logging  # noqa: F401
        import threading  # noqa: F401
    finally:
        os.register_at_fork = register


def of_zygote(obey):
    """What `obey` returns, in the zygote or in a fork that it has made."""
    global _is_zygotes
    _is_zygotes = True
    try:
        return obey()
    finally:
        _is_zygotes = False


_import()
