"""A place of our own: everything that one run makes, and its undoing.

Answers for: a folder under $TMPDIR that holds a file system in memory, and a record of each mount, loop device and
process of this run, undone in reverse order whatever ends the run. Never touches anything that is not in its record.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile


class CannotRun(Exception):
    """This machine lacks something that the rig stands on."""


def call(*command):
    """Runs a command and returns what it printed; where it fails, what it said is the error."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().replace("\n", "; ")
        raise OSError(f"{command[0]} ended with {done.returncode}: {said}")
    return done.stdout


def is_mount(path):
    """Whether something is mounted exactly there, found without touching it (it may hang or be dead)."""
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
        return any(line.split(" ")[1] == str(path) for line in mounts)


def unmount(path):
    """Unmounts what is mounted there, if anything; lazily where it is still busy."""
    if is_mount(path):
        try:
            call("umount", path)
        except OSError:
            call("umount", "--lazy", path)


class Scratch:
    """The folder and the record. Use as a context; `undo` notes first, so that an end in the middle finds the note."""

    def __init__(self):
        self.record = contextlib.ExitStack()
        self.held = 0
        self.asked_to_end = False

    def __enter__(self):
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGHUP, self._on_signal)
        with self.whole():
            self.folder = tempfile.mkdtemp(prefix="powercut-")
            self.undo(shutil.rmtree, self.folder, True)
            self.memory = os.path.join(self.folder, "memory")
            os.mkdir(self.memory)
            self.undo(unmount, self.memory)
            try:
                call("mount", "-t", "tmpfs", "-o", "size=75%,mode=0700", "powercut", self.memory)
            except OSError as error:
                self.record.close()
                raise CannotRun(f"no file system can be mounted: {error}") from error
        return self

    def __exit__(self, *_):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self.record.close()

    def _on_signal(self, number, _frame):
        self.asked_to_end = True
        self.number = number
        if not self.held:
            raise SystemExit(128 + number)

    @contextlib.contextmanager
    def whole(self):
        """Nothing is interrupted between making a thing and noting it: a signal to end waits for the end of the block."""
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1
        if self.asked_to_end and not self.held:
            raise SystemExit(128 + self.number)

    def undo(self, action, *arguments):
        """Notes how something is undone; the undoing must bear that it was never made or is gone already."""
        self.record.callback(action, *arguments)

    def place(self, *names):
        """A path in the memory."""
        return os.path.join(self.memory, *names)

    @contextlib.contextmanager
    def inner(self):
        """A record within the record, undone at the end of the block."""
        outer, self.record = self.record, contextlib.ExitStack()
        mine = self.record
        outer.push(mine)
        try:
            yield
        finally:
            with self.whole():
                self.record = outer
                mine.close()
