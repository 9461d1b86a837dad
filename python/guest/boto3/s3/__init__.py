"""Managed transfers of S3."""


def __getattr__(name):
    """Modules that the real one has imported by itself."""
    if name in ("inject", "transfer"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
