"""The `masil` command."""

from masil.cli.main import main

__all__ = ["main"]
