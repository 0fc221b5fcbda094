"""vLLM: facts that the direct connector's chunks carry: the key before each, and its tokens.

The daemon tells routers which tokens a chunk is (`events.zmq`). A chunk carries them only if its
tokens suffice to find it: not if its hash covers more than tokens (images, a salt), and not after a
reset, when no other engine finds it.
"""

import array
import typing

from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.kv_offload.base import get_offload_block_hash, get_offload_group_idx

from kvkeep.metadata import chunk_metadata


class Facts(typing.NamedTuple):
    """Facts of a chunk. The worker that stores part 0 encodes the tokens: that takes milliseconds
    for a long prompt, which the scheduler cannot spare."""

    parent: typing.Optional[bytes] = None
    tokens: bytes = b""  # of 32 bits each; without them routers hear nothing
    block_tokens: int = 0
    adapter: str = ""

    def metadata(self):
        if not self.tokens:
            return b""
        return chunk_metadata(array.array("I", self.tokens), self.parent, self.block_tokens,
                              self.adapter)


class OfGroup(typing.NamedTuple):
    """Returns the state of vLLM's scheduler for a request in one KV group."""

    request: object
    config: object
    state: object


def of_group(scheduler, request, group):
    """Returns the OfGroup, or None if the request is gone. scheduler: vLLM's
    OffloadingConnectorScheduler."""
    status = scheduler._req_status.get(request)
    if status is None:
        return None
    return next((OfGroup(status.req, config, state) for config, state in zip(
        scheduler.config.kv_group_configs, status.group_states) if config.group_idx == group), None)


class ChunkFacts:
    """Makes the Facts of chunks. scheduler: vLLM's OffloadingConnectorScheduler. own: OwnKeys. For
    the scheduler's thread only."""

    def __init__(self, scheduler, kv_cache_config, own, tell_tokens):
        self._scheduler, self._own = scheduler, own
        # A prefix is reported once, by the first group that has all of it.
        self.told = next((at for at, group in enumerate(kv_cache_config.kv_cache_groups)
                          if isinstance(group.kv_cache_spec, FullAttentionSpec)), None)
        self._block_tokens = (kv_cache_config.kv_cache_groups[self.told].kv_cache_spec.block_size
                              if tell_tokens and self.told is not None else None)

    def of(self, key, req_context):
        """Returns the Facts of a key, empty if it is not a whole chunk of the prompt. key: vLLM's,
        of a live request."""
        group = get_offload_group_idx(key)
        known = of_group(self._scheduler, req_context.req_id, group)
        end = req_context.get_offload_key_position(key)
        if known is None or end is None or end % known.config.tokens_per_chunk != 0:
            return Facts()
        keys, at = known.state.offload_keys, end // known.config.tokens_per_chunk - 1
        if not 0 <= at < len(keys) or keys[at] != key:
            return Facts()
        parent = None
        if at > 0:
            parent = self._own.of(keys[at - 1], req_context.req_id, "store")
            if parent is None:
                return Facts()
            parent = get_offload_block_hash(parent)
        if self._block_tokens is None or not self._tells(known.request, group):
            return Facts(parent)
        tokens = known.request.all_token_ids[end - known.config.tokens_per_chunk:end]
        adapter = known.request.lora_request
        return Facts(parent, array.array("I", tokens).tobytes(), self._block_tokens,
                     adapter.lora_name if adapter is not None else "")

    def may_tell(self, key, request):
        """Returns whether a request's key can be found from its tokens alone."""
        group = get_offload_group_idx(key)
        known = of_group(self._scheduler, request, group)
        return known is not None and self._tells(known.request, group)

    def _tells(self, request, group):
        if group != self.told or self._own.private:
            return False
        return not (request.mm_features or request.cache_salt or request.prompt_embeds is not None)
