"""Few-shot class-incremental learning: new classes from five photos each, without forgetting the old ones."""

__version__ = "0.1.0"
