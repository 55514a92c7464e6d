"""What may be left of a recorded disk when its power is cut.

Answers for: choosing the moments, and making the disk of each. Of the commands given until then, all that came before
the last completed FLUSH are there; of the later writes the disk may have kept all, none, or any: that is what a volatile
write cache promises (the kernel's Documentation/block/writeback_cache_control.rst). A write with FUA is always there.
"""

import os
from typing import NamedTuple

from recorder import DISCARD, FLUSH, FUA, SECTOR, copy_sparse

KINDS = ("all", "none", "half")
PIECE = 4096  # of a torn write; every sector of it is kept or lost with it


class Cut(NamedTuple):
    """A moment, and what the disk kept of what it had not made durable."""

    position: int  # commands given until then
    kind: str


def choose(positions, telling, count, random):
    """Cuts in ascending order: a third at the telling positions (answers), the rest anywhere; each at most once."""
    telling = sorted(set(telling))
    chosen = set()
    for pool, share in ((telling, count // 3), (list(positions), count)):
        candidates = [Cut(position, kind) for position in pool for kind in KINDS]
        random.shuffle(candidates)
        for cut in candidates:
            if len(chosen) >= share:
                break
            chosen.add(cut)
    return sorted(chosen)


class Disks:
    """Makes the disk of one cut after the other, in ascending order."""

    def __init__(self, log, base, durable, trial, random):
        self.log, self.durable, self.trial, self.random = log, durable, trial, random
        copy_sparse(base, durable)
        self.applied = 0
        self.flushes = [place for place, command in enumerate(log.commands) if command.flags & FLUSH]

    def make(self, cut):
        """Writes the disk of a cut to the trial file."""
        flushed = max((place for place in self.flushes if place < cut.position), default=0)
        with open(self.durable, "r+b", buffering=0) as disk:
            for command in self.log.commands[self.applied : flushed]:
                self._apply(disk, command, "all")
        self.applied = max(self.applied, flushed)
        copy_sparse(self.durable, self.trial)
        torn = self.random.random() < 0.5
        with open(self.trial, "r+b", buffering=0) as disk:
            for command in self.log.commands[flushed : cut.position]:
                if command.flags & FUA or cut.kind == "all":
                    self._apply(disk, command, "all")
                elif cut.kind == "half" and torn:
                    self._apply(disk, command, "torn")
                elif cut.kind == "half" and self.random.random() < 0.5:
                    self._apply(disk, command, "all")

    def _apply(self, disk, command, kind):
        if command.sectors == 0:
            return
        data = bytes(command.sectors * SECTOR) if command.flags & DISCARD else self.log.data(command)
        begin = command.sector * SECTOR
        if kind == "all":
            write_all(disk, data, begin)
            return
        for place in range(0, len(data), PIECE):
            if self.random.random() < 0.5:
                write_all(disk, data[place : place + PIECE], begin + place)


def write_all(disk, data, offset):
    """Writes every byte, or says that it could not."""
    if os.pwrite(disk.fileno(), data, offset) != len(data):
        raise OSError("the scratch disk is full")
