"""Few-shot class-incremental learning: new classes from five photos each, without forgetting the old ones."""

from typing import TYPE_CHECKING, Any

from masil.hardware import note_limit

if TYPE_CHECKING:
    from masil.learner import Masil, tune

__version__ = "0.1.0"
__all__ = ["Masil", "__version__", "tune"]

note_limit()  # reads a variable and changes nothing: what is set before torch is imported surely holds


def __getattr__(name: str) -> Any:
    """Bring the learner when it is asked for: `import masil` alone stays quick."""
    if name in ("Masil", "tune"):
        from masil import learner

        return getattr(learner, name)
    raise AttributeError(f"module 'masil' has no attribute '{name}'")
