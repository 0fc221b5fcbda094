"""Uses of the client whose types are wrong, each line that ends in "wrong" and no other.
types_test.py wants exactly those refused; nothing runs them."""

from typing import List

import kvkeep
from kvkeep import aio


def names(cache: kvkeep.Cache) -> None:
    cache.put("name", "text")  # wrong
    cache.put(1, b"bytes")  # wrong
    cache.get("name").decode()  # wrong
    cache.get("name", 5)  # wrong
    cache.put_many({"name": "text"})  # wrong
    number: bytes = cache.delete("name")  # wrong
    print(number)


async def names_awaited(cache: kvkeep.AsyncCache) -> None:
    data: bytes = await cache.get("name")  # wrong
    for name, _ in cache.get_many(["name"]):  # wrong
        print(name, data)
    with cache:  # wrong
        pass


def chunks(ns: kvkeep.Namespace, client: kvkeep.Client, keys: List[bytes]) -> None:
    kvkeep.Client(path="udp")  # wrong
    client.namespace("model")  # wrong
    ns.put([("text", b"bytes")])  # wrong
    ns.put([(keys[0], "text")])  # wrong
    ns.get(keys, [object() for _ in keys])  # wrong
    ns.lookup(keys, lease="most")  # wrong
    ns.lookup(["text"])  # wrong
    ns.lookup(keys).lease.release()  # wrong
    ns.lookup(keys).leadingkeys  # wrong
    ns.get(keys, [], lease=True)  # wrong
    hits: List[bool] = ns.touch(keys)  # wrong
    print(hits)


async def chunks_awaited(calls: aio.Calls, ns: kvkeep.Namespace, keys: List[bytes]) -> None:
    got: kvkeep.Got = await calls.lookup(ns, keys)  # wrong
    print(got, calls.lookup(ns, keys).leading_keys)  # wrong


def gpu(client: kvkeep.Client, ns: kvkeep.Namespace, key: bytes) -> None:
    kvkeep.GpuRegion(client, b"bytes of the host")  # wrong
    ns.gpu_put([(key, b"bytes")])  # wrong
