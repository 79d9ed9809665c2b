"""Files of masil's own and child processes: atomic writes, locks, checksums, records, tensors; caches; the commit."""

from masil.storage.atomic import (
    atomic_path,
    cache_folder,
    digest,
    locked,
    read_json,
    why_unwritable,
    write_bytes,
    write_json,
)
from masil.storage.checkout import commit, commit_with, has_commit
from masil.storage.child import Child, Parent
from masil.storage.records import fits, flat, from_json, to_json
from masil.storage.tensors import TensorFormat, read_tensors, write_tensors
