"""Prefill once, restart everything, restore: same logits.

    python transformers_demo.py            the first time it computes the prompt, later it does not

A random-weight Llama (made from a seed, so that it is the same in each run) and a prompt of 4,096
tokens. Prints JSON: whether the cache came from kvkeep, the times, and a digest of the logits.
"""

import hashlib
import json
import time

import kvkeep
import torch
from kvkeep.transformers import CacheKeeper
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)
torch.manual_seed(0)
config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8,
                     num_attention_heads=16, num_key_value_heads=4, vocab_size=32000,
                     max_position_embeddings=8192, dtype="bfloat16")
model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
prompt = torch.randint(0, 32000, (1, 4097), generator=torch.Generator().manual_seed(1))

client = kvkeep.Client()
client.wait_connected()
keeper = CacheKeeper(client, model)
with torch.no_grad():
    start = time.perf_counter()
    cache, tokens = keeper.restore(prompt)
    restored = time.perf_counter()
    if tokens < 4096:
        cache = model(prompt[:, tokens:4096], past_key_values=cache, use_cache=True,
                      logits_to_keep=1).past_key_values
    prefilled = time.perf_counter()
    stored = keeper.save(prompt[:, :4096], cache).stored
    saved = time.perf_counter()
    logits = model(prompt[:, 4096:], past_key_values=cache, use_cache=True).logits
digest = hashlib.sha256(logits.view(torch.uint8).numpy().tobytes()).hexdigest()
print(json.dumps({"path": client.path.name, "restored_tokens": tokens, "stored_chunks": stored,
                  "restore_s": round(restored - start, 4),
                  "prefill_s": round(prefilled - restored, 4),
                  "save_s": round(saved - prefilled, 4), "logits": digest}))
