"""The commit protocol in its plainest form, in Python: what the rig itself is proven with.

Answers for: speaking the driver's words (see tests/src/bin/powercut_driver.rs), changing files durably and exactly once
with an intent in a journal before each change, and leaving out one rule of it when told so. Never used by the product.

    stage in state/ -> intent durable -> swap -> directories durable -> `done` (lazy) -> answer
"""

import argparse
import ctypes
import hashlib
import json
import os
import shutil
import stat
import struct
import sys
import threading
import zlib
from queue import SimpleQueue

LIBC = ctypes.CDLL(None, use_errno=True)
NOREPLACE, EXCHANGE = 1, 2
SLOT, SLOTS = 512, 1024
HEAD = struct.Struct("<III")  # crc of the rest, number, length


class Refused(Exception):
    """The request is answered with an error."""


def rename(from_directory, old, to_directory, new, flags):
    """renameat2(2)."""
    if LIBC.renameat2(from_directory, os.fsencode(old), to_directory, os.fsencode(new), flags) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), new)


class Journal:
    """Slots of a file that was written full once, so that a record never needs new space."""

    def __init__(self, state, without):
        self.without = without
        self.file = os.open("journal", os.O_CREAT | os.O_RDWR, 0o600, dir_fd=state)
        self.next = 0
        if os.fstat(self.file).st_size != SLOT * SLOTS:
            os.pwrite(self.file, bytes(SLOT * SLOTS), 0)
            os.fsync(self.file)
            os.fsync(state)

    def records(self):
        """All whole records, in order."""
        found = []
        while self.next < SLOTS:
            slot = os.pread(self.file, SLOT, self.next * SLOT)
            crc, number, length = HEAD.unpack_from(slot)
            body = slot[4 : HEAD.size + length]
            if number != self.next + 1 or length > SLOT - HEAD.size or zlib.crc32(body) != crc:
                break
            found.append(json.loads(slot[HEAD.size : HEAD.size + length]))
            self.next += 1
        return found

    def add(self, record):
        """Writes a record, not durably."""
        text = json.dumps(record, separators=(",", ":")).encode()
        body = struct.pack("<II", self.next + 1, len(text)) + text
        slot = struct.pack("<I", zlib.crc32(body)) + body
        if len(slot) > SLOT or self.next == SLOTS:
            raise Refused("the journal is full")
        os.pwrite(self.file, slot.ljust(SLOT, b"\0"), self.next * SLOT)
        self.next += 1

    def sync(self):
        """Makes all records durable."""
        os.fdatasync(self.file)


class Workspace:
    """The files, changed one request at a time."""

    def __init__(self, root, without):
        self.without = without
        self.root = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        self.state = os.open(os.path.join(os.path.dirname(root), "state"), os.O_RDONLY | os.O_DIRECTORY)
        self.journal = Journal(self.state, without)
        self.done = {}  # key: (request hash, answer)
        self.displaced = []
        self.staged = 0
        self.recover()

    # ---- recovery

    def recover(self):
        """Finishes or undoes every intent without an end."""
        open_intents = {}
        for record in self.journal.records():
            if record["type"] == "intent":
                open_intents[record["key"]] = record
            else:
                intent = open_intents.pop(record["key"])
                if record["type"] == "done":
                    self.done[record["key"]] = (intent["hash"], intent["answer"])
        for key, intent in open_intents.items():
            if self._happened(intent):
                self._sync_directories(intent["path"], intent.get("to", intent["path"]))
                self.done[key] = (intent["hash"], intent["answer"])
                self.journal.add({"type": "done", "key": key})
            else:
                self.journal.add({"type": "aborted", "key": key})
        self.journal.sync()
        for name in os.listdir(self.state):
            if name != "journal":
                self._delete(name)
        os.fsync(self.state)

    def _happened(self, intent):
        """Asks the target first, then the place the change came from."""
        target = self._inode(intent.get("to", intent["path"]))
        staged = self._staged_inode(intent["stage"])
        act, inode = intent["act"], intent["inode"]
        if act == "remove":
            if staged == inode and target == inode:  # half of a rename between two directories
                self._delete(intent["stage"])
                return False
            return target != inode
        if act == "move":
            source = self._inode(intent["path"])
            if target == inode and source == inode:
                self._remove_name(intent["path"])
            return target == inode or source != inode
        if target == inode:
            return True
        if staged == inode:
            return False
        return intent["base"] is None or staged is not None

    # ---- requests

    def ask(self, request):
        """One request, once."""
        key = request["key"]
        asked = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:16]
        if key in self.done:
            known, answer = self.done[key]
            if known != asked:
                raise Refused("idempotency_key_reused")
            return {**answer, "replayed": True}
        act = {"patch": self._put, "write": self._put, "remove": self._remove, "move": self._move}
        answer = act.get(request["op"], self._make_directory)(request, {"type": "intent", "key": key, "hash": asked})
        self.done[key] = (asked, answer)
        return {**answer, "replayed": False}

    def _put(self, request, intent):
        path = request["path"]
        old, mode = self._read(path)
        if request.get("expected") == "absent" and old is not None:
            raise Refused("revision_mismatch")
        new = request["content"].encode() if "content" in request else edited(old, request["edits"])
        made = self._make_parents(path) if request.get("parents") else []
        with Parent(self.root, path) as (parent, name):
            stage = self._stage_name()
            file = os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o600, dir_fd=parent)
            with open(file, "wb") as writer:
                writer.write(new)
                writer.flush()
                os.fchmod(file, mode if old is not None else request.get("mode", 0o644))
                if "name-before-flush" in self.without:
                    os.fsync(file)
                os.link(f"/proc/self/fd/{file}", stage, dst_dir_fd=self.state, follow_symlinks=True)
                if not {"file-flush", "name-before-flush"} & set(self.without):
                    os.fsync(file)
                    os.fsync(self.state)
                inode = os.fstat(file).st_ino
            revision = hashlib.sha256(new).hexdigest()
            base = hashlib.sha256(old).hexdigest()[:16] if old is not None else None
            self._intend(intent, act="put", path=path, stage=stage, inode=inode, base=base, answer={"revision": revision})
            rename(self.state, stage, parent, name, NOREPLACE if old is None else EXCHANGE)
        self._finish(intent, made, stage if old is not None else None, path)
        return intent["answer"]

    def _remove(self, request, intent):
        path = request["path"]
        with Parent(self.root, path) as (parent, name):
            stage = self._stage_name()
            inode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_ino
            self._intend(intent, act="remove", path=path, stage=stage, inode=inode, answer={})
            rename(parent, name, self.state, stage, NOREPLACE)
        self._finish(intent, [], stage, path)
        return {}

    def _move(self, request, intent):
        path, target = request["path"], request["to"]
        made = self._make_parents(target) if request.get("parents") else []
        with Parent(self.root, path) as (parent, name), Parent(self.root, target) as (to_parent, to_name):
            inode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_ino
            self._intend(intent, act="move", path=path, to=target, stage="", inode=inode, answer={})
            rename(parent, name, to_parent, to_name, 0 if request.get("replace") else NOREPLACE)
        self._finish(intent, made, None, target, path)
        return {}

    def _make_directory(self, request, intent):
        path = request["path"]
        made = self._make_parents(path) if request.get("parents") else []
        stage = self._stage_name()
        os.mkdir(stage, dir_fd=self.state)
        os.chmod(stage, request.get("mode", 0o755), dir_fd=self.state)
        with Parent(self.state, stage, itself=True) as (directory, _):
            os.fsync(directory)
            os.fsync(self.state)
            inode = os.fstat(directory).st_ino
        self._intend(intent, act="make", path=path, stage=stage, inode=inode, base=None, answer={})
        with Parent(self.root, path) as (parent, name):
            rename(self.state, stage, parent, name, NOREPLACE)
        self._finish(intent, made, None, path)
        return {}

    # ---- the steps of every change

    def _intend(self, intent, **facts):
        intent.update(facts)
        self.journal.add(intent)
        if "intent" not in self.without:
            self.journal.sync()
            self._delete_displaced()

    def _finish(self, intent, made, displaced, *paths):
        if "directory-flush" not in self.without:
            self._sync_directories(*paths, *made)
        self.journal.add({"type": "done", "key": intent["key"]})
        if displaced is not None:
            self.displaced.append(displaced)
        if "displaced-stays" in self.without:
            self._delete_displaced()
            os.fsync(self.state)

    def _delete_displaced(self):
        for name in self.displaced:
            self._delete(name)
        self.displaced.clear()

    def _sync_directories(self, *paths):
        """The parents of these paths, from the deepest up, and the state; a parent may be gone at recovery."""
        for path in sorted(paths, key=len, reverse=True):
            try:
                with Parent(self.root, path) as (parent, _):
                    os.fsync(parent)
            except FileNotFoundError:
                pass
        os.fsync(self.state)

    def _make_parents(self, path):
        """Makes what is missing on the way, and returns it."""
        made = []
        names = path[1:].split("/")[:-1]
        for depth in range(1, len(names) + 1):
            directory = "/" + "/".join(names[:depth])
            if self._inode(directory) is None:
                with Parent(self.root, directory) as (parent, name):
                    os.mkdir(name, dir_fd=parent)
                    os.chmod(name, 0o755, dir_fd=parent)
                made.append(directory)
        return made

    def _stage_name(self):
        self.staged += 1
        return f"stage{self.staged}"

    def _read(self, path):
        try:
            with Parent(self.root, path) as (parent, name):
                with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=parent), "rb") as file:
                    return file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        except FileNotFoundError:
            return None, None

    def _inode(self, path):
        try:
            with Parent(self.root, path) as (parent, name):
                return os.stat(name, dir_fd=parent, follow_symlinks=False).st_ino
        except FileNotFoundError:
            return None

    def _staged_inode(self, name):
        try:
            return os.stat(name, dir_fd=self.state, follow_symlinks=False).st_ino if name else None
        except FileNotFoundError:
            return None

    def _remove_name(self, path):
        with Parent(self.root, path) as (parent, name):
            os.unlink(name, dir_fd=parent)

    def _delete(self, name):
        if stat.S_ISDIR(os.stat(name, dir_fd=self.state, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=self.state)
        else:
            os.unlink(name, dir_fd=self.state)


class Parent:
    """A path's directory, held, and its last name."""

    def __init__(self, root, path, itself=False):
        directory, _, self.name = (path, "", "") if itself else path.rpartition("/")
        self.held = os.open(directory.lstrip("/") or ".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=root)

    def __enter__(self):
        return self.held, self.name

    def __exit__(self, *_):
        os.close(self.held)


def edited(data, edits):
    """A file's text after its edits."""
    if data is None:
        raise Refused("file_not_found")
    text = data.decode()
    for old, new, everywhere in edits:
        if text.count(old) == 0 or (text.count(old) > 1 and not everywhere):
            raise Refused("edit_no_match" if old not in text else "edit_not_unique")
        text = text.replace(old, new)
    return text.encode()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True)
    parser.add_argument("--agent-state", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--without", action="append", default=[])
    arguments = parser.parse_args()
    workspace = Workspace(arguments.root, arguments.without)
    mutex, waiting = threading.Lock(), SimpleQueue()
    say = lambda answer: os.write(1, (json.dumps(answer) + "\n").encode())

    def work():
        while (request := waiting.get()) is not None:
            number = request.pop("id")
            try:
                with mutex:
                    answer = {"ok": True, **workspace.ask(request)}
            except Refused as reason:
                answer = {"ok": False, "error": str(reason)}
            except OSError as error:
                answer = {"ok": False, "error": "io_error", "message": str(error)}
            say({"id": number, **answer})

    threads = [threading.Thread(target=work) for _ in range(arguments.threads)]
    for thread in threads:
        thread.start()
    say({"open": True})
    for line in sys.stdin:
        waiting.put(json.loads(line))
    for _ in threads:
        waiting.put(None)
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
