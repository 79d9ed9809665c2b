"""Files of masil's own: atomic writes, checksums, and where caches live."""

from masil.files.files import atomic_path, cache_folder, digest, read_json, write_bytes, write_json

__all__ = ["atomic_path", "cache_folder", "digest", "read_json", "write_bytes", "write_json"]
