"""Whether every byte of a store is as it was written: `regard data check`."""

from __future__ import annotations

from collections.abc import Iterator

from regard.data.pair_store import PairStore, shard_name
from regard.errors import CheckpointError
from regard.storage.folder import Folder
from regard.storage.manifest import check_folder, manifest_digest


def problems(store: PairStore) -> Iterator[str]:
    """A sentence for everything in the store that is not as it was written."""
    parts = [("tokenizer", store.info.tokenizer_sha256)]
    parts += [(shard_name(number), shard.sha256) for number, shard in enumerate(store.info.shards)]
    for name, digest in parts:
        folder = Folder(store.folder, name)
        try:
            check_folder(folder)
            if manifest_digest(folder) != digest:
                raise CheckpointError(f"{folder} is whole but not the one that this store was made with")
        except CheckpointError as error:
            yield str(error)
