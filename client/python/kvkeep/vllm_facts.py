"""vLLM: what the direct connector's chunks say of themselves: the key before each, and its tokens.

The daemon tells routers which tokens a chunk is (`events.zmq`). Only of chunks that whoever has the
tokens can ask for: not where more than tokens is in a chunk's hash (images, a salt), and not after
a reset, when nobody else finds them.
"""

import typing

from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.kv_offload.base import get_offload_block_hash, get_offload_group_idx

from kvkeep.metadata import chunk_metadata


class Facts(typing.NamedTuple):
    parent: typing.Optional[bytes] = None
    metadata: bytes = b""


class ChunkFacts:
    """scheduler: vLLM's OffloadingConnectorScheduler. own: OwnKeys. Of the scheduler's thread."""

    def __init__(self, scheduler, kv_cache_config, own, tell_tokens):
        self._scheduler, self._own = scheduler, own
        # A prefix is told of once, by the first group that has all of it.
        self._told = next((at for at, group in enumerate(kv_cache_config.kv_cache_groups)
                           if isinstance(group.kv_cache_spec, FullAttentionSpec)), None)
        self._block_tokens = (kv_cache_config.kv_cache_groups[self._told].kv_cache_spec.block_size
                              if tell_tokens and self._told is not None else None)

    def of(self, key, req_context):
        """key: vLLM's, of a request that lives."""
        status = self._scheduler._req_status.get(req_context.req_id)
        end = req_context.get_offload_key_position(key)
        if status is None or end is None:
            return Facts()
        group = get_offload_group_idx(key)
        config, state = next((config, state) for config, state in zip(
            self._scheduler.config.kv_group_configs, status.group_states)
            if config.group_idx == group)
        at = end // config.tokens_per_chunk - 1
        if state.offload_keys[at] != key:
            return Facts()
        parent = None
        if at > 0:
            parent = self._own.of(state.offload_keys[at - 1], req_context.req_id, "store")
            if parent is None:
                return Facts()
            parent = get_offload_block_hash(parent)
        return Facts(parent, self._tokens(status.req, group, end - config.tokens_per_chunk, end,
                                          parent))

    def _tokens(self, request, group, begin, end, parent):
        if self._block_tokens is None or group != self._told or self._own.private:
            return b""
        if request.mm_features or request.cache_salt or request.prompt_embeds is not None:
            return b""
        adapter = request.lora_request
        return chunk_metadata(request.all_token_ids[begin:end], parent, self._block_tokens,
                              adapter.lora_name if adapter is not None else "")
