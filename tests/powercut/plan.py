"""What is done to the workspace, and what must be there after each step.

Answers for: a seeded plan of steps in a few lanes, and the world (every path with its type, mode and bytes) before and
after each step. Steps of one lane follow each other and touch only names that begin with the lane's; steps of different
lanes may happen at once. A step is a request to the driver, or something that another process does to the files.
"""

import string
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

LANES = 4


class Node(NamedTuple):
    """A file or directory."""

    kind: str  # "file" or "directory"
    mode: int  # permission bits
    data: bytes = b""


@dataclass
class Step:
    """One change, and the lane's world on both sides of it. Positions and answer are filled in when it happens."""

    lane: int
    name: str  # what it is, for people and counts
    request: Optional[dict]  # to the driver; nothing: another process does it
    before: dict
    after: dict
    outside: Optional[tuple] = None  # ("replace", path) or ("remove", path)
    begin: int = 0
    end: int = 0
    answer: dict = field(default_factory=dict)

    def told(self):
        """Its name and place, for people."""
        if self.outside:
            return f"outside: {' '.join(self.outside)}"
        target = f" to {self.request['to']}" if "to" in self.request else ""
        return f"{self.request['key']}: {self.name} {self.request['path']}{target}"


class Planner:
    """Makes the steps of one plan."""

    def __init__(self, random, outsider):
        self.random = random
        self.outsider = outsider
        self.keys = 0
        self.names = 0
        self.worlds = [self._first_world(lane) for lane in range(LANES)]
        self.initial = {path: node for world in self.worlds for path, node in world.items()}

    def steps(self, count):
        """So many requests, and what another process does between them, lane by lane."""
        lanes = [[] for _ in range(LANES)]
        kinds = [
            (self._edit, 40),
            (self._replace_content, 8),
            (self._create, 14),
            (self._create_with_parents, 8),
            (self._write, 10),
            (self._remove, 8),
            (self._remove_tree, 3),
            (self._move, 8),
            (self._move_over, 4),
            (self._make_directory, 5),
        ]
        makers, weights = zip(*kinds)
        requests = 0
        while requests < count:
            lane = requests % LANES
            step = self.random.choices(makers, weights)[0](lane)
            if step is None:
                continue
            requests += 1
            lanes[lane].append(step)
            self.worlds[lane] = step.after
            if self.outsider:
                lanes[lane].extend(self._outside(lane, step))
        return lanes

    # ---- the kinds of steps; each returns nothing where the lane's world has no place for it

    def _edit(self, lane):
        """Puts a line before the last one, by one edit; sometimes a second edit changes what the first one put."""
        path = self._file(lane)
        if path is None:
            return None
        old = self.worlds[lane][path]
        last = last_line(old.data)
        key = self._key()
        line = f"key {key} {self._filler()}\n"
        edits = [[last, line + last, False]]
        new = old.data[: -len(last)] + (line + last).encode()
        if self.random.random() < 0.2:
            edits.append([f"key {key} ", f"key {key}: ", False])
            new = new.replace(f"key {key} ".encode(), f"key {key}: ".encode())
        request = {"op": "patch", "key": key, "path": path, "edits": edits}
        return self._step(lane, "edit", request, {path: old._replace(data=new)})

    def _replace_content(self, lane):
        path = self._file(lane)
        if path is None:
            return None
        key = self._key()
        text = self._text(key)
        request = {"op": "patch", "key": key, "path": path, "content": text}
        return self._step(lane, "content", request, {path: self.worlds[lane][path]._replace(data=text.encode())})

    def _create(self, lane, parents=False):
        directory, made = self._directory(lane), {}
        if parents:
            directory, made = self._missing_directory(lane)
        path, key = self._new_name(lane, directory), self._key()
        text = self._text(key)
        mode = self.random.choice((None, 0o600, 0o755))
        request = {"op": "patch", "key": key, "path": path, "content": text, "expected": "absent"}
        request |= {"mode": mode} if mode else {}
        request |= {"parents": True} if parents else {}
        node = Node("file", mode or 0o644, text.encode())
        return self._step(lane, "create with parents" if parents else "create", request, made | {path: node})

    def _create_with_parents(self, lane):
        return self._create(lane, parents=True)

    def _write(self, lane):
        """A Write, of a file that is there or of a new one."""
        path = self._file(lane) if self.random.random() < 0.5 else None
        old = self.worlds[lane][path] if path else Node("file", 0o644)
        path = path or self._new_name(lane, self._directory(lane))
        key = self._key()
        text = self._text(key)
        request = {"op": "write", "key": key, "path": path, "content": text}
        request |= {"announced": True} if self.random.random() < 0.5 else {}
        return self._step(lane, "write", request, {path: old._replace(data=text.encode())})

    def _remove(self, lane):
        path = self._file(lane)
        if path is None:
            return None
        return self._step(lane, "remove", {"op": "remove", "key": self._key(), "path": path}, {path: None})

    def _remove_tree(self, lane):
        path = self._top_directory(lane)
        if path is None:
            return None
        gone = dict.fromkeys(within(self.worlds[lane], path))
        request = {"op": "remove", "key": self._key(), "path": path, "recursive": True}
        return self._step(lane, "remove tree", request, gone)

    def _move(self, lane):
        """A file or a directory to a new name, now and then into directories that are made for it."""
        path = self._top_directory(lane) if self.random.random() < 0.25 else self._file(lane)
        if path is None:
            return None
        parents = self.random.random() < 0.3
        directory, made = self._missing_directory(lane, "/") if parents else ("/", {})
        target = self._new_name(lane, directory)
        moved = {}
        for old in within(self.worlds[lane], path):
            moved[old] = None
            moved[target + old[len(path) :]] = self.worlds[lane][old]
        request = {"op": "move", "key": self._key(), "path": path, "to": target}
        request |= {"parents": True} if parents else {}
        return self._step(lane, "move", request, made | moved)

    def _move_over(self, lane):
        """A file onto another one."""
        files = self._files(lane)
        if len(files) < 3:
            return None
        path, target = self.random.sample(files, 2)
        request = {"op": "move", "key": self._key(), "path": path, "to": target, "replace": True}
        return self._step(lane, "move over", request, {path: None, target: self.worlds[lane][path]})

    def _make_directory(self, lane):
        parents = self.random.random() < 0.4
        directory, made = self._missing_directory(lane) if parents else (self._directory(lane), {})
        path = self._new_name(lane, directory)
        mode = self.random.choice((None, 0o700))
        request = {"op": "make_directory", "key": self._key(), "path": path}
        request |= {"mode": mode} if mode else {}
        request |= {"parents": True} if parents else {}
        return self._step(lane, "make directory", request, made | {path: Node("directory", mode or 0o755)})

    def _outside(self, lane, step):
        """What another process does to the file of the step just answered."""
        path = step.request.get("to", step.request["path"])
        node = self.worlds[lane].get(path)
        if node is None or node.kind != "file" or self.random.random() < 0.5:
            return []
        if step.name.startswith("create") and self.random.random() < 0.4:
            changes, act = {path: None}, ("remove", path)
        else:
            self.names += 1
            data = f"outside {self.names}\n".encode() + node.data
            changes, act = {path: node._replace(data=data)}, ("replace", path)
        made = self._step(lane, "outside", None, changes)
        made.outside = act
        self.worlds[lane] = made.after
        return [made]

    # ---- what they are made of

    def _step(self, lane, name, request, changes):
        before = self.worlds[lane]
        after = {path: node for path, node in (before | changes).items() if node is not None}
        return Step(lane, name, request, before, after)

    def _first_world(self, lane):
        """A few files and a directory, which the rig makes itself."""
        world = {f"/l{lane}-d": Node("directory", 0o755), f"/l{lane}-d/deep": Node("directory", 0o755)}
        for place, mode in ((f"/l{lane}-a", 0o644), (f"/l{lane}-b", 0o755), (f"/l{lane}-d/c", 0o644)):
            world[place] = Node("file", mode, f"first of {place}\n{self._filler()}\nend of {place}\n".encode())
        return world

    def _files(self, lane):
        return sorted(path for path, node in self.worlds[lane].items() if node.kind == "file")

    def _file(self, lane):
        """A file that is there; the first ones more often, so that the same file changes many times."""
        files = self._files(lane)
        if not files:
            return None
        return files[min(self.random.randrange(len(files)), self.random.randrange(len(files)))]

    def _directory(self, lane):
        """A directory that is there, most often the root."""
        directories = [path for path, node in self.worlds[lane].items() if node.kind == "directory"]
        return self.random.choice(directories) if directories and self.random.random() < 0.4 else "/"

    def _top_directory(self, lane):
        directories = [path for path, node in self.worlds[lane].items() if node.kind == "directory"]
        tops = sorted(path for path in directories if path.count("/") == 1)
        return self.random.choice(tops) if tops else None

    def _missing_directory(self, lane, within_directory=None):
        """One or two directories to be made on the way."""
        path = self._new_name(lane, within_directory or self._directory(lane))
        made = {path: Node("directory", 0o755)}
        if self.random.random() < 0.5:
            path = self._new_name(lane, path)
            made[path] = Node("directory", 0o755)
        return path, made

    def _new_name(self, lane, directory):
        """A name that is not there: now and then one that was there before."""
        parent = directory.rstrip("/")
        if self.random.random() < 0.3:
            for number in range(4):
                path = f"{parent}/l{lane}-again{number}"
                if path not in self.worlds[lane]:
                    return path
        self.names += 1
        return f"{parent}/l{lane}-n{self.names}"

    def _key(self):
        self.keys += 1
        return f"k{self.keys:04}"

    def _text(self, key):
        return f"key {key} {self._filler()}\nend of {key}\n"

    def _filler(self):
        """Text of a few bytes, of a few blocks, or now and then of many."""
        length = self.random.choice((20, 20, 3000, 9000, 60000) if self.random.random() < 0.3 else (20, 500, 5000))
        length = self.random.randrange(length)
        return "".join(self.random.choices(string.ascii_lowercase, k=length))


def last_line(data):
    """The last line of a file, which no other line of it equals."""
    return data[data.rindex(b"\n", 0, -1) + 1 :].decode()


def within(world, path):
    """A path and all beneath it."""
    return [one for one in world if one == path or one.startswith(path + "/")]
