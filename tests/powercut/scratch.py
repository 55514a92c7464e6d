"""A place of our own: everything that one run makes, and its undoing.

Answers for: a folder under $TMPDIR that holds a file system in memory, and a record of each mount, loop device and
process of this run, undone in reverse order whatever ends the run. Never touches anything that is not in its record.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile


class CannotRun(Exception):
    """This machine lacks something that the rig stands on."""


def call(*command):
    """Runs a command and returns what it printed; where it fails, what it said is the error."""
    # In a session of its own: a signal to the rig's group must not leave a thing half made or half undone.
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, start_new_session=True)
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


def adopt_orphans():
    """Makes this process the parent of daemons whose own has ended (PR_SET_CHILD_SUBREAPER, prctl(2))."""
    if ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def reap_orphans():
    """Takes the exit status of all that have ended, so that nothing of them stays."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


class Scratch:
    """The folder and the record. Use as a context; `undo` notes first, so that an end in the middle finds the note."""

    def __init__(self):
        self.record = contextlib.ExitStack()
        self.held = 0
        self.signal = None  # that asked for the end
        self.is_ending = False

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self):
        adopt_orphans()
        with self.whole():
            self.folder = tempfile.mkdtemp(prefix="powercut-")
            self.undo(shutil.rmtree, self.folder, True)
            self.memory = os.path.join(self.folder, "memory")
            os.mkdir(self.memory)
            self.undo(unmount, self.memory)
            try:
                call("mount", "-t", "tmpfs", "-o", "size=75%,mode=0700", "powercut", self.memory)
            except OSError as error:
                raise CannotRun(f"no file system can be mounted: {error}") from error

    def __exit__(self, *_):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self.record.close()
        reap_orphans()

    def _on_signal(self, number, _frame):
        self.signal = number
        if not self.held:
            self._end()

    def _end(self):
        """Ends the run, once: more signals change nothing, since the undoing has begun."""
        if not self.is_ending:
            self.is_ending = True
            raise SystemExit(128 + self.signal)

    @contextlib.contextmanager
    def whole(self):
        """Nothing is interrupted between making a thing and noting it: a signal to end waits for the end of the block."""
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1
        if self.signal and not self.held:
            self._end()

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
