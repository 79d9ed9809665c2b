"""Files of masil's own and child processes: atomic writes, locks, checksums, records, tensors; where caches live."""

from masil.files.atomic import atomic_path, cache_folder, digest, read_json, write_bytes, write_json
from masil.files.child import Child, Parent
from masil.files.lock import locked
from masil.files.records import flat, from_json, to_json
from masil.files.tensors import TensorFormat, read_tensors, write_tensors
