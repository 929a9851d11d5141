"""Tensors of a source, compared with what the engines expect before anybody is disturbed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trimtab.errors import InvalidRequest
from trimtab_manager.weights import payload
from trimtab_manager.weights.manifest import Manifest, check_tensors, read_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab_manager.weights.scope import Member
    from trimtab_manager.weights.source import Distributed, Tensors


async def checked_tensors(source: Tensors | Distributed, members: Sequence[Member]) -> list[payload.Pair]:
    """The tensors of ``source``.

    Raises:
        InvalidRequest: They do not fit, or what the engines expect cannot be found out.
    """
    tensors = payload.pairs(source.tensors)
    manifest = source.manifest if source.manifest is not None else await _manifest(members)
    check_tensors(payload.specs(tensors), manifest, partial=source.partial)
    return tensors


async def _manifest(members: Sequence[Member]) -> Manifest:
    # What an engine was started with has the names and shapes of every later checkpoint of the same model, and its path
    # is the same as long as updates are not from disk.
    found = await asyncio.gather(*(member.client.model_info() for member in members), return_exceptions=True)
    paths = sorted({info.model_path for info in found if not isinstance(info, BaseException)})
    if not paths:
        raise InvalidRequest("no engine says which checkpoint it runs: give the manifest of its tensors")
    manifests = [await asyncio.to_thread(read_manifest, path) for path in paths]
    if any(manifest != manifests[0] for manifest in manifests):
        raise InvalidRequest(f"the engines run different checkpoints: {', '.join(paths)}")
    return manifests[0]
