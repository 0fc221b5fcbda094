"""kvkeep.sglang_offers; neither SGLang nor a daemon is needed.

    sglang_offers_test.py SOURCES LIBRARY
"""

import os
import pathlib
import sys
import unittest

os.environ["KVKEEP_CLIENT_LIBRARY"] = sys.argv[2]
sys.path.insert(0, str(pathlib.Path(sys.argv[1], "client", "python")))

from kvkeep.sglang_offers import Offers  # noqa: E402


class Lease:
    def __init__(self):
        self.kept = self.released = None

    def shrink(self, keys):
        self.kept = keys

    def release(self):
        self.released = True


class Answers(unittest.TestCase):
    def setUp(self):
        self.now, self.there, self.asked, self.held = 0.0, 2, [], True

        def ask(of):
            self.asked.append(Lease() if self.there else None)
            return self.asked[-1], min(self.there, len(of))

        self.offers = Offers(ask, lambda lease, of: self.held, 5, lambda: self.now)

    def test_an_answer_is_kept_as_long_as_it_is_one(self):
        self.assertEqual([self.offers.pages("r", [1, 2]) for _ in range(3)], [2] * 3)
        self.assertEqual(len(self.asked), 1)
        self.assertEqual(self.offers.pages("s", [1, 2]), 2)  # each request has its own
        self.assertEqual(self.offers.pages("r", [1, 2, 3]), 2)  # other keys are asked for
        self.assertTrue(self.asked[0].released)
        self.assertEqual(len(self.asked), 3)
        self.offers.pages("r", [1, 2, 3])
        self.now = 0.03  # missing pages may have come
        self.there = 3
        self.assertEqual(self.offers.pages("r", [1, 2, 3]), 3)
        self.assertTrue(self.asked[2].released)
        self.held = False
        self.offers.pages("r", [1, 2, 3])
        self.assertEqual(len(self.asked), 5)

    def test_an_answer_is_that_of_its_first_keys_too(self):
        self.assertEqual(self.offers.pages("r", [1, 2]), 2)
        self.assertEqual(self.offers.pages("r", [1]), 1)
        self.assertEqual(self.offers.pages("r", [1, 2]), 2)
        self.assertEqual(len(self.asked), 1)
        self.assertIs(self.offers.take("r", [1]), self.asked[0])

    def test_it_is_replaced_only_by_one_that_is_not_worse_and_asked_for_ever_later(self):
        self.assertEqual(self.offers.pages("r", [1, 2, 3]), 2)
        asked = []
        for self.there in (0, 1, 2):  # the daemon hangs, and nothing more came
            for _ in range(100):
                self.now += 0.01
                self.assertEqual(self.offers.pages("r", [1, 2, 3]), 2)
            asked.append(len(self.asked))
        self.assertEqual([one is None or one.released for one in self.asked],
                         [None] + [True] * (len(self.asked) - 1))
        self.assertLess(asked[2], 12)
        self.there, self.now = 3, self.now + 1
        self.assertEqual(self.offers.pages("r", [1, 2, 3]), 3)
        self.assertTrue(self.asked[0].released)

    def test_what_is_taken_is_no_longer_kept(self):
        self.offers.pages("r", [1, 2])
        self.assertIs(self.offers.take("r", [1]), self.asked[0])
        self.assertEqual((self.asked[0].kept, self.asked[0].released), (1, None))
        self.assertIsNone(self.offers.take("r", [1]))
        for keys_taken, held in (([1, 2, 3], True), ([2], True), ([1], False)):
            self.offers.pages("r", [1, 2, 3])
            self.held = held
            self.assertIsNone(self.offers.take("r", keys_taken))
            self.assertTrue(self.asked[-1].released)
            self.held = True
        self.there = 0
        self.offers.pages("r", [1])
        self.assertIsNone(self.offers.take("r", [1]))

    def test_what_nobody_takes_is_given_back(self):
        self.offers.pages("r", [1])
        self.now = 3
        self.offers.pages("s", [1])
        self.now = 5
        self.offers.expire()
        self.assertEqual([one.released for one in self.asked], [True, None])
        self.offers.clear()
        self.assertEqual((self.asked[1].released, len(self.offers)), (True, 0))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
