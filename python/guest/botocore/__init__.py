"""The botocore that functions of Millpond find: S3 by way of the backend, and the names that programs import from the real one.

It holds no credentials and opens no socket. `_s3` is the table of operations, `_s3_more` that of rare ones, `_shapes` reads their notation, `client`
sends. `_lambda` has functions call functions. `_real` is the real one for all else, if the function brings it, and `_absent` stands where it does not.
`_hooks` has programs' own functions called at the steps of a call.
"""

import sys

__version__ = "1.44.5"


class UNSIGNED:
    """What `signature_version` may be, to no effect: who signs is the backend's matter."""

    def __copy__(self):
        return self

    def __deepcopy__(self, _memory):
        return self


UNSIGNED = UNSIGNED()


def __getattr__(name):
    """Modules that the real one has imported by itself."""
    if name in ("endpoint", "errorfactory", "handlers", "paginate", "response", "session", "waiter"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


class _Finder:
    """Asked last for modules: those of the real boto3 that are not here."""

    # Whether the real one is in our place.
    is_aside = False

    @classmethod
    def find_spec(cls, name, _path=None, _target=None):
        if cls.is_aside or not name.startswith(("boto3.", "botocore.")) or name == "botocore._real":
            return None
        from botocore import _real

        return _real.find_spec(name)


sys.meta_path.append(_Finder)
