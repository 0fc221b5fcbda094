"""Speed of the machine without kvkeep, in the same rounds: a series for each baseline, measured by
a process of its own (client/baselines.h)."""

from figures import bytes_text
from load import client_process
from measured import Measured
from series import Series

MIN_COPIES_PER_REGION = 2


def _counted(count, word):
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


class Baselines:
    """A context manager."""

    def __init__(self, program, mount_dir="", region_bytes=0):
        """`mount_dir` of the arena, empty for memfd. `region_bytes`: that copies go between; 0:
        enough to be cold."""
        self._child, self._mount_dir = client_process(program, "baselines"), mount_dir
        self._series, self._huge_page_bytes = {}, 0
        self.machine = self._child.ask("machine")
        self._cold_bytes = self.machine.pop("cold_bytes")
        self._region_bytes = region_bytes or self._cold_bytes

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._child.kill()

    def pool_bytes(self):
        """Bytes of the pool that puts are made of, to be as cold."""
        return self._region_bytes

    def copy(self, size, threads, seconds):
        """One more round of copies of cold memory: its series."""
        region_bytes = max(MIN_COPIES_PER_REGION * size, self._region_bytes)
        answer = self._child.ask("cold copy", seconds, size=size, threads=threads,
                                 seconds=seconds, region_bytes=region_bytes,
                                 mount_dir=self._mount_dir)
        self._huge_page_bytes = answer.pop("huge_page_bytes")
        return self._add(f"memcpy {bytes_text(size)}, {_counted(threads, 'thread')}",
                         {"size": size, "threads": threads,
                          "region_bytes": answer.pop("region_bytes"),
                          "huge_page_bytes": self._huge_page_bytes}, answer)

    def ping_pong(self, verb, keys, depth, seconds):
        """One more round of the messages of that call on so many keys, thrown back by a process."""
        answer = self._child.ask("ping-pong", seconds, verb=verb, keys=keys, depth=depth,
                                 seconds=seconds)
        name = f"ping-pong, {verb} of {_counted(keys, 'key')}"
        return self._add(name if depth == 1 else f"{name}, depth {depth}",
                         {"request_bytes": answer.pop("request_bytes"),
                          "reply_bytes": answer.pop("reply_bytes"), "depth": depth}, answer)

    def touch_gb_per_second(self, size, threads):
        """The rate of touching fresh pages."""
        answer = self._child.ask("touch", bytes=size, threads=threads, mount_dir=self._mount_dir)
        return answer["bytes"] / answer["seconds"] / 1e9

    def add_to(self, report):
        report.machine = self.machine
        report.baselines += [series for _, series in sorted(self._series.items())]
        report.baseline_huge_page_bytes = self._huge_page_bytes

    def _add(self, name, about, answer):
        series = self._series.setdefault(name, Series(name))
        series.about = about
        series.rounds.append(Measured(answer))
        return series
