"""Progress bars on a terminal, silence elsewhere."""

from masil.progress.progress import CONSOLE, Bar, bar, quiet, track

__all__ = ["CONSOLE", "Bar", "bar", "quiet", "track"]
