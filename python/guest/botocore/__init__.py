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


def rest_of(module):
    """`__getattr__` of a module here: what it does not have is the real one's, if the function brings it."""

    def found(name):
        if name.startswith("__"):
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        from botocore import _real

        return _real.rest_of(module, name)

    return found


def part_of(package):
    """`__getattr__` of a package here: a module of it, or what the real one has there, if the function brings it."""

    def found(name):
        if name.startswith("__"):
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        import importlib

        module = f"{package}.{name}"
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
        return rest_of(package)(name)

    return found


__getattr__ = part_of(__name__)


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
