"""Few-shot class-incremental learning: new classes from five photos each, without forgetting the old ones."""

from masil.hardware import prepare

__version__ = "0.1.0"

prepare()  # before torch is used: some processors announce instructions that kill the process
