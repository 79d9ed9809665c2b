"""Files of masil's own: atomic writes, locks, checksums, and where caches live."""

from masil.files.files import atomic_path, cache_folder, digest, read_json, write_bytes, write_json
from masil.files.lock import locked

__all__ = ["atomic_path", "cache_folder", "digest", "locked", "read_json", "write_bytes", "write_json"]
