"""What was measured, in two JSON files: the figures, and what was heard and said. A run adds to
what an earlier one left, if that was asked for the same.

Pure, but for `Results`, which reads and writes the files.
"""

import json
import os
import pathlib


class OtherSettings(Exception):
    """The file has figures of another experiment."""


def differences(said):
    """said: {arm: {question: [tokens, gaps]}} of one number of users. Returns {arm: how it compares
    with the first arm}: `equal` answers of `asked` questions that both had, and of the others the
    largest gap that the first arm's logits had where the tokens first differ."""
    names, out = list(said), {}
    for name in names[1:]:
        first, mine = said[names[0]], said[name]
        both = [question for question in first if question in mine]
        gaps = []
        for question in both:
            (tokens, of_first), (others, _) = first[question], mine[question]
            at = next((i for i, pair in enumerate(zip(tokens, others)) if pair[0] != pair[1]), None)
            if at is not None:
                gaps.append(of_first[at])
        out[name] = {"than": names[0], "asked": len(both), "equal": len(both) - len(gaps)}
        if gaps:
            out[name]["largest_gap"] = max(gaps)
    return out


class Results:
    """file: the figures; what was said lies next to it."""

    def __init__(self, file, settings):
        self._file = pathlib.Path(file)
        self._words_file = self._file.with_suffix(".tokens.json")
        self._said = {"users": {}}
        self.document = {"settings": settings, "machine": {}, "facts": {}, "rows": [],
                         "lengths": [], "differences": {}}
        if self._file.exists():
            found = json.loads(self._file.read_text(encoding="utf-8"))
            if found["settings"] != settings:
                raise OtherSettings(f"{file} has figures of other settings: remove it, or name "
                                    "another --out")
            self.document = found
            self._said = json.loads(self._words_file.read_text(encoding="utf-8"))

    def rows(self, arm):
        return [row for row in self.document["rows"] if row["arm"] == arm]

    def lengths(self):
        return self.document["lengths"]

    def machine(self, facts):
        self.document["machine"] = facts

    def facts_of(self, arm, facts):
        self.document["facts"][arm] = facts

    def heard(self, users):
        """What these users hear, as far as any arm has told."""
        return self._said["users"].get(str(users), {}).get("heard", {})

    def add(self, row, heard, said):
        of_users = self._said["users"].setdefault(str(row["users"]), {"said": {}})
        of_users["heard"] = heard
        of_users["said"][row["arm"]] = said
        self.document["rows"].append(row)
        self.document["differences"][str(row["users"])] = differences(of_users["said"])
        self.keep()

    def add_length(self, row):
        self.document["lengths"].append(row)
        self.keep()

    def keep(self):
        """The file of words first: the other one says what is done."""
        for file, what in ((self._words_file, self._said), (self._file, self.document)):
            fresh = file.with_suffix(".new")
            fresh.write_text(json.dumps(what, indent=1 if what is self.document else None) + "\n",
                             encoding="utf-8")
            os.replace(fresh, file)


def line_of_facts(arm, facts):
    reached = f", kvkeep by {facts['path']}" if facts["path"] else ""
    return f"{arm} begins: {facts['device']}, {facts['kv_blocks']} blocks of KV{reached}"


def line_of(row):
    """One row, for whoever waits."""
    joules = "" if row["joules_per_token"] is None else f", {row['joules_per_token']:.2f} J a token"
    return (f"{row['arm']}, {row['users']} users: TTFT p50 {row['ttft_p50_s']:.3f}, "
            f"p90 {row['ttft_p90_s']:.3f}, p99 {row['ttft_p99_s']:.3f} s, "
            f"TPS {row.get('tps', 0):.1f}{joules}, {row['hit_ratio']:.0%} of prompts found")


def line_of_length(row):
    return (f"{row['tokens']} tokens: computed {row['computed_s']:.3f} s, "
            f"from G2 {row['g2_s']:.3f} s, from NVMe {row['nvme_s']:.3f} s")
