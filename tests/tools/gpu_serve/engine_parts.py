"""The parts of tools/gpu-serve that need torch: model, paged cache, and an engine that recalls from
a dict. Run by run_test.py, by a Python with torch.

    engine_parts.py SOURCES
"""

import dataclasses
import pathlib
import sys
import types
import unittest
import unittest.mock

SOURCES = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(SOURCES / "tools"), str(SOURCES / "client" / "python")]

import torch  # noqa: E402
from gpu_serve import paged, store  # noqa: E402
from gpu_serve.blocks import BlockPool  # noqa: E402
from gpu_serve.engine import Engine  # noqa: E402
from gpu_serve.model import Model  # noqa: E402
from gpu_serve.paged import PagedCache, check_attention  # noqa: E402
from gpu_serve.runner import Runner  # noqa: E402
from gpu_serve.scheduler import Limits, Piece, Sequence  # noqa: E402
from gpu_serve.shapes import TINY  # noqa: E402
from gpu_serve.store import DictStore  # noqa: E402
from torch.nn.attention.bias import causal_upper_left  # noqa: E402

BLOCKS, ROWS = 80, 4
PROMPTS = [[(7 * at + 3 * who) % 500 + 3 for at in range(40 + 30 * who)] for who in range(4)]


def plain_logits(model, tokens):
    """Returns those of the last token, without a cache, by the definition of attention."""
    def attend(_, queries, keys, values):
        group = queries.shape[1] // keys.shape[1]
        keys, values = (one.repeat_interleave(group, dim=1) for one in (keys, values))
        scores = torch.einsum("qhd,khd->hqk", queries, keys) / keys.shape[-1] ** 0.5
        seen = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
        weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
        return torch.einsum("hqk,khd->qhd", weights, values).flatten(1)

    x = model.forward(torch.tensor(tokens), torch.arange(len(tokens)), attend)
    return model.logits(x[-1:])[0]


class Rig:
    """One engine, whose parts a test may look at."""

    def __init__(self, exact, keeps=True, store_of=None, shape=TINY, **limits):
        given = {"budget": 64, "rows": ROWS, **limits}
        self.model = Model(shape, "cpu", seed=1)
        self.cache = PagedCache(shape, BLOCKS, "cpu")
        self.pool = BlockPool(BLOCKS, keeps)
        self.store = store_of(self.cache) if store_of else None
        self.engine = Engine(
            self.pool, Limits(shape.block_tokens, shape.chunk_tokens, exact=exact, **given),
            Runner(self.model, self.cache, exact, given["rows"], shape.chunk_tokens), self.store)

    def ask(self, prompts, answer_tokens=12):
        return [one.result(timeout=300) for one in
                [self.engine.ask(prompt, answer_tokens) for prompt in prompts]]

    def forget(self):
        self.engine.settle()
        self.pool.forget_all()
        self.cache.all.zero_()


class FakeNamespace:
    """Keeps the bytes of what is put, whatever it lies in, and gives them back but for `absent`."""

    def __init__(self, absent=()):
        self.kept, self.absent = {}, absent

    def put(self, chunks):
        for key, payload in chunks:
            parts = payload if isinstance(payload, list) else [payload]
            self.kept[key] = b"".join(part.numpy().tobytes() for part in parts)
        return types.SimpleNamespace(good=[True] * len(chunks))

    def get(self, keys, into, **_):
        for key, payload in zip(keys, into):
            parts, at = payload if isinstance(payload, list) else [payload], 0
            for part in parts:
                words = self.kept[key][at:at + part.nbytes]
                part.copy_(torch.frombuffer(bytearray(words), dtype=part.dtype).view(part.shape))
                at += part.nbytes
        return types.SimpleNamespace(good=[key not in self.absent for key in keys])


class EngineParts(unittest.TestCase):
    def rig(self, *arguments, **more):
        made = Rig(*arguments, **more)
        self.addCleanup(made.engine.stop)
        return made

    def test_paged_and_batched_is_what_attention_is_by_its_definition(self):
        for exact in (False, True):
            rig = self.rig(exact)
            for prompt, said in zip(PROMPTS, rig.ask(PROMPTS)):
                tokens = list(prompt)
                for token, gap in zip(said["tokens"], said["gaps"]):
                    best = plain_logits(rig.model, tokens).topk(2).values
                    logits = plain_logits(rig.model, tokens)
                    self.assertAlmostEqual(float(best[0] - logits[token]), 0, places=3)
                    self.assertAlmostEqual(float(best[0] - best[1]), gap, places=3)
                    tokens.append(token)

    def test_a_block_is_one_run_and_holds_what_was_written(self):
        cache = PagedCache(TINY, 4, "cpu")
        self.assertEqual(cache.all[1].nbytes, TINY.block_bytes)
        self.assertTrue(cache.all[1].is_contiguous())
        keys = torch.arange(3 * TINY.kv_heads * TINY.head_dim).float().view(3, TINY.kv_heads, -1)
        slots = torch.tensor(cache.slots_of([3, 1], 6, 3))  # over the end of a block
        cache.write(1, slots, keys, -keys)
        (found_keys,), (found_values,) = cache.read(1, torch.tensor([[3, 1]]))
        self.assertTrue(torch.equal(found_keys[6:9], keys))
        self.assertTrue(torch.equal(found_values[6:9], -keys))
        self.assertEqual(int(cache.all[:, 0].count_nonzero()), 0)
        self.assertTrue(torch.equal(cache.all[1, 1, 0, 0], keys[2]))

    def test_bytes_come_back_through_host_memory_in_other_blocks(self):
        for mover_of in (store._HostMover, store._StagedMover):
            cache, namespace = PagedCache(TINY, 20, "cpu"), FakeNamespace()
            cache.all.normal_(generator=torch.Generator().manual_seed(1))
            mover = mover_of(cache, namespace)
            first, second = [1, 5, 3, 2], [4, 6, 8, 7]
            wanted = cache.copy_of([*first, *second])
            self.assertEqual(mover.put([b"a", b"b"], [first, second]), [True, True])
            cache.all.zero_()
            others = [[11, 12, 19, 14], [9, 13, 10, 18]]
            self.assertEqual(mover.get([b"a", b"b"], others, None, 0), [True, True])
            self.assertTrue(torch.equal(cache.copy_of(sum(others, [])), wanted))
            self.assertEqual(int(cache.all[:9].count_nonzero()), 0)
            namespace.absent = [b"b"]
            self.assertEqual(mover.get([b"a", b"b"], others, None, 0), [True, False])

    def test_attention_is_checked_by_its_definition(self):
        check_attention(TINY, "cpu")
        check_attention(dataclasses.replace(TINY, dtype="bfloat16"), "cpu")
        with unittest.mock.patch.object(paged, "causal_lower_right", causal_upper_left):
            with self.assertRaisesRegex(RuntimeError, "attention of a prompt is"):
                check_attention(TINY, "cpu")

    def test_sums_tell_of_other_bytes_and_of_other_places(self):
        cache = PagedCache(TINY, 6, "cpu")
        cache.all.normal_(generator=torch.Generator().manual_seed(1))
        cache.all[2] = cache.all[1]
        one, same, other = cache.sums_of([1, 2, 3], at_once=2)
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)
        cache.all[2, 0, 0, 0, 0, :2] = cache.all[1, 0, 0, 0, 0, :2].flip(0)
        self.assertNotEqual(cache.sums_of([2]), [one])

    def test_exact_answers_do_not_depend_on_what_was_found_or_who_else_asks(self):
        nothing = self.rig(True, keeps=False).ask(PROMPTS)
        alone = [said for prompt in PROMPTS for said in self.rig(True, budget=32).ask([prompt])]
        rig = self.rig(True, store_of=DictStore)
        first = rig.ask(PROMPTS)
        shared = rig.ask(PROMPTS)
        rig.forget()
        recalled = rig.ask(reversed(PROMPTS))[::-1]
        self.assertGreater(sum(one["cached"] for one in shared), 0)
        self.assertEqual([one["recalled"] for one in recalled], [32, 64, 96, 128])
        for others in (alone, first, shared, recalled):
            for one, other in zip(nothing, others):
                self.assertEqual(one["tokens"], other["tokens"])
                self.assertEqual(one["gaps"], other["gaps"])  # each bit

    def test_a_damaged_block_changes_what_is_said(self):
        damage = {"on": False}

        def spoil(found):
            if damage["on"]:
                found[0].mul_(-1.0)

        rig = self.rig(True, store_of=lambda cache: DictStore(cache, spoil))
        first = rig.ask(PROMPTS)
        rig.forget()
        self.assertEqual([one["tokens"] for one in rig.ask(PROMPTS)],
                         [one["tokens"] for one in first])
        rig.forget()
        damage["on"] = True
        for one, other in zip(first, rig.ask(PROMPTS)):
            self.assertGreater(other["recalled"], 0)
            self.assertNotEqual(one["tokens"], other["tokens"])

    def test_a_model_depends_on_its_seed_and_on_each_token_of_its_context(self):
        logits = plain_logits(Model(TINY, "cpu", seed=1), PROMPTS[1])
        self.assertTrue(torch.equal(logits, plain_logits(Model(TINY, "cpu", seed=1), PROMPTS[1])))
        self.assertFalse(torch.equal(logits, plain_logits(Model(TINY, "cpu", seed=2), PROMPTS[1])))
        other = list(PROMPTS[1])
        other[5] += 1
        self.assertFalse(torch.equal(logits, plain_logits(Model(TINY, "cpu", seed=1), other)))

    def test_sixteen_bits_run_too(self):
        rig = self.rig(False, shape=dataclasses.replace(TINY, dtype="bfloat16"))
        self.assertEqual(len(rig.ask(PROMPTS)[3]["tokens"]), 12)

    def test_a_step_without_a_wanted_token_says_nothing(self):
        rig = self.rig(False)
        one = Sequence(PROMPTS[0], 1, 0.0, None, TINY.block_tokens)
        one.blocks = list(range(1, 9))
        runner = Runner(rig.model, rig.cache)
        with unittest.mock.patch.object(runner, "synchronize") as waits:
            self.assertEqual(runner.run([Piece(one, 0, 16, False, False)]), [])
        waits.assert_called_once()  # what it wrote may be copied to a store from now on
        self.assertEqual(len(runner.run([Piece(one, 16, 24, True, False)])), 1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
