"""Whether a workspace that lost its power is as it must be.

Answers for: comparing one cut disk, reopened by the driver, with what its recording says, and naming what is wrong.
With a step's answer before the cut, the world after it must be there, byte for byte; a step that was under way may have
happened or not, as a whole; every answered key must be remembered; and after retries of all of them the world must be
the one in which each happened once. Two readers look: the files themselves, and the driver's answers.
"""

import os
import stat
import tempfile

from driver import Driver, DriverFault
from plan import Node, last_line

UNSEEN = "cannot be looked at"
FREE_PREFIX = "noise"  # names that other processes use and nobody judges


def read_world(root):
    """Every path beneath a mounted root, as the kernel shows it."""
    world = {}
    for folder, directories, files in os.walk(root):
        inner = folder[len(root) :]
        if not inner:
            directories[:] = [name for name in directories if not name.startswith(FREE_PREFIX)]
            files = [name for name in files if not name.startswith(FREE_PREFIX)]
        for name in directories + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    node = Node("file", stat.S_IMODE(status.st_mode), file.read())
            elif stat.S_ISDIR(status.st_mode):
                node = Node("directory", stat.S_IMODE(status.st_mode))
            else:
                node = Node(f"type {stat.S_IFMT(status.st_mode):o}", 0)
            world[f"{inner}/{name}"] = node
    return world


class Lane:
    """What one lane's steps say of a cut at a position."""

    def __init__(self, steps, first, position):
        self.answered = [step for step in steps if step.end <= position]
        begun = [step for step in steps if step.begin <= position < step.end]
        self.under_way = begun[0] if begun else None
        self.before = self.answered[-1].after if self.answered else first
        self.after = self.under_way.after if self.under_way else self.before
        self.earlier = [step.before for step in self.answered]

    def is_allowed(self, actual):
        """Before or after the step under way; and directories that it makes on its way may be there already."""
        if actual in (self.before, self.after):
            return True
        extra = {path: node for path, node in actual.items() if path not in self.before}
        early = all(node.kind == "directory" and self.after.get(path) == node for path, node in extra.items())
        return early and {path: node for path, node in actual.items() if path not in extra} == self.before

    def faults(self, actual, worlds):
        """What differs from the nearest of the allowed worlds: kinds, each with the first place."""
        found = min((differences(actual, world, self.earlier) for world in worlds), key=len)
        return {kind: f"{path}, {self.told()}" for kind, path in reversed(found)}

    def told(self):
        """Where the lane was, for people."""
        last = f"last answered {self.answered[-1].told()}" if self.answered else "nothing answered"
        return f"{last}, under way {self.under_way.told() if self.under_way else 'nothing'}"


def differences(actual, wanted, earlier):
    """What is wrong with a world: for each path that differs, (kind, path)."""
    found = []
    for path in sorted(actual.keys() | wanted.keys()):
        is_there, wanted_there = actual.get(path), wanted.get(path)
        if is_there == wanted_there:
            continue
        if wanted_there is None:
            was_there = any(path in world for world in earlier)
            kind = "removed or moved, and there again" if was_there else "left over"
        elif is_there is None:
            kind = "lost"
        elif is_there.data == wanted_there.data:
            kind = "wrong mode or type"
        else:
            kind = content_fault(is_there.data, wanted_there.data, [world.get(path) for world in earlier])
        found.append((kind, path))
    return found


def content_fault(data, wanted, earlier):
    """How a file's bytes came to be wrong."""
    lines = data.split(b"\n")
    keys = [line.split()[1].rstrip(b":") for line in lines if line.startswith(b"key ") and len(line.split()) > 1]
    if len(keys) != len(set(keys)):
        return "applied twice"
    if any(node is not None and node.data == data for node in earlier):
        return "lost"
    if not data.endswith(b"\n") or b"\0" in data or last_line(wanted).encode() not in data:
        return "torn"
    return "neither old nor new"


class Judge:
    """Judges the cuts of one recording."""

    def __init__(self, scratch, command, lanes, initial, without=None):
        self.scratch, self.command, self.lanes, self.without = scratch, command, lanes, without
        self.first = [lane_world(initial, lane) for lane in range(len(lanes))]

    def judge(self, mount, position):
        """What is wrong with a mounted disk that was cut there: kinds, each with the first place; empty where all is right."""
        lanes = [Lane(steps, first, position) for steps, first in zip(self.lanes, self.first)]
        root = os.path.join(mount, "root")
        faults = {}
        try:
            with self._driver(mount) as driver:
                faults |= self._look(root, lanes, None)
                faults |= self._retry(driver, lanes)
                faults |= self._look(root, lanes, "retried")
            with self._driver(mount) as driver:
                faults |= self._retry(driver, lanes, again=True)
                faults |= self._look(root, lanes, "retried")
        except DriverFault as fault:
            faults |= {UNSEEN: str(fault)}
        return faults

    def _driver(self, mount):
        # A fresh place each time: what must survive lies with the workspace.
        agent_state = tempfile.mkdtemp(prefix="agent-", dir=self.scratch.memory)
        return Driver(self.scratch, self.command, mount, agent_state, without=self.without)

    def _look(self, root, lanes, retried):
        actual = read_world(root)
        faults = {}
        for number, lane in enumerate(lanes):
            mine = lane_world(actual, number)
            if retried and mine != lane.after and not is_free(lane, mine):
                found = lane.faults(mine, [lane.after])
                faults |= {f"after a retry: {kind}": where for kind, where in found.items()}
            elif not retried and not lane.is_allowed(mine):
                faults |= lane.faults(mine, [lane.before, lane.after])
        for path in actual:
            if lane_of(path) is None:
                faults["left over"] = path
        return faults

    def _retry(self, driver, lanes, again=False):
        """Retries every answered request, and the one under way last, as a client does that heard nothing."""
        faults = {}
        for lane in lanes:
            for step in lane.answered:
                if step.request:
                    answer = driver.ask(step.request)
                    if not answer.get("ok"):
                        faults[f"retry refused: {answer.get('error')}"] = f"{step.told()}: {answer.get('message')}"
                    elif not answer.get("replayed"):
                        faults["key forgotten"] = step.told()
                    elif answer.get("revision") != step.answer.get("revision"):
                        faults["another answer"] = step.told()
            if lane.under_way and lane.under_way.request:
                answer = driver.ask(lane.under_way.request)
                if not answer.get("ok"):
                    kind = f"retry of the one under way refused: {answer.get('error')}"
                    faults[kind] = f"{lane.under_way.told()}: {answer.get('message')}"
                elif again and not answer.get("replayed"):
                    faults["key forgotten"] = lane.under_way.told()
        return faults


def is_free(lane, actual):
    """Another process's step that was under way is nobody's to finish: either side of it is right."""
    return lane.under_way is not None and lane.under_way.request is None and actual == lane.before


def lane_of(path):
    """The lane that owns a path, by its first name; nothing where none does."""
    name = path[1:].split("/", 1)[0]
    return int(name[1]) if name[:1] == "l" and name[1:2].isdigit() else None


def lane_world(world, lane):
    """A lane's part of a world."""
    return {path: node for path, node in world.items() if lane_of(path) == lane}
