"""The `masil` command."""

from masil.cli.app import app, main
