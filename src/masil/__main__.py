"""`python -m masil` is the `masil` command."""

from masil.cli import main

main()
