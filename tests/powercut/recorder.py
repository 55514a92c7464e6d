"""A disk that remembers every command it was given, with a file system on it.

    file system on /dev/loopN -> FUSE export of qemu-storage-daemon -> blklogwrites -> a plain file, and a log beside it

Answers for: setting that up, reading the log, and counting its commands. The loop device reports a volatile write
cache, so the file system sends FLUSH exactly where it wants durability, and the log holds it between the writes.
The log's layout is that of dm-log-writes (Documentation/admin-guide/device-mapper/log-writes.rst in the kernel,
block/blklogwrites.c in QEMU): a superblock of one sector, then for each command a header of one sector and its data.
"""

import os
import select
import signal
import struct
import subprocess
from typing import NamedTuple

from scratch import CannotRun, call, unmount

SECTOR = 512
FLUSH, FUA, DISCARD = 1, 2, 4
LOG_BYTES = 2 << 30
HEADER = struct.Struct("<QQQQ")

DISK_BYTES = {"ext4": 256 << 20, "xfs": 320 << 20, "btrfs": 256 << 20}
MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-b", "4096"),
    "xfs": ("mkfs.xfs", "-q"),
    "btrfs": ("mkfs.btrfs", "-q"),
}
# A copy of a disk has the identity of its original, which only xfs minds.
MOUNT_OPTIONS = {"ext4": "loop", "xfs": "loop,nouuid", "btrfs": "loop"}


class Command(NamedTuple):
    """One command that the disk was given."""

    sector: int
    sectors: int
    flags: int
    data: int  # offset of its data in the log, in bytes

    def is_barrier(self):
        """Whether it makes something durable."""
        return bool(self.flags & (FLUSH | FUA))


class Log:
    """The commands so far, read as they arrive."""

    def __init__(self, path):
        self.file = open(path, "rb", buffering=0)
        self.commands = []
        self.next = SECTOR

    def position(self):
        """How many commands the disk was given until now."""
        while True:
            head = os.pread(self.file.fileno(), HEADER.size, self.next)
            if len(head) < HEADER.size:
                return len(self.commands)
            sector, sectors, flags, _ = HEADER.unpack(head)
            if sectors == 0 and flags == 0:
                return len(self.commands)
            data = self.next + SECTOR
            self.commands.append(Command(sector, sectors, flags, data))
            self.next = data + (0 if flags & DISCARD else sectors * SECTOR)

    def data(self, command):
        """What a write wrote."""
        return os.pread(self.file.fileno(), command.sectors * SECTOR, command.data)


class Recorder:
    """One recorded disk. Mount, loop device and daemon are noted in the scratch's current record; disk and log stay, until
    the next recording takes their place."""

    def __init__(self, scratch, file_system, name):
        self.scratch = scratch
        self.file_system = file_system
        self.disk, self.base = scratch.place(f"{name}.disk"), scratch.place(f"{name}.base")
        self.log_path, self.export = scratch.place(f"{name}.log"), scratch.place(f"{name}.export")
        self.mount = scratch.place(f"{name}.mount")

    def start(self, image=None):
        """Makes a disk, or takes a copy of an image, and mounts it."""
        for path, size in ((self.base, DISK_BYTES[self.file_system]), (self.log_path, LOG_BYTES), (self.export, 0)):
            with open(path, "wb") as file:
                file.truncate(size)
        os.makedirs(self.mount, exist_ok=True)
        if image:
            copy_sparse(image, self.base)
        else:
            call(*MAKE[self.file_system], self.base)
            # xfs writes a log of zeros, which every copy would have to copy.
            call("fallocate", "--dig-holes", self.base)
        copy_sparse(self.base, self.disk)
        self._serve()
        try:
            self.scratch.undo(detach, self.export)
            loop = call("losetup", "--find", "--show", self.export).strip()
        except OSError as error:
            raise CannotRun(f"no loop device: {error}") from error
        with open(f"/sys/block/{os.path.basename(loop)}/queue/write_cache", encoding="ascii") as cache:
            if cache.read().strip() != "write back":
                raise CannotRun("the loop device reports no volatile write cache, so nothing would be flushed")
        self.scratch.undo(unmount, self.mount)
        try:
            call("mount", "-t", self.file_system, loop, self.mount)
        except OSError as error:
            raise CannotRun(f"{self.file_system} cannot be mounted: {error}") from error
        self.log = Log(self.log_path)

    def _serve(self):
        """Starts the storage daemon; its parent returns when the export is there."""
        identity = self.scratch.place("daemon.pid")
        self.scratch.undo(unmount, self.export)
        command = [
            "qemu-storage-daemon",
            *("--blockdev", f"driver=file,node-name=disk,filename={self.disk}"),
            *("--blockdev", f"driver=file,node-name=log,filename={self.log_path}"),
            *("--blockdev", f"driver=blklogwrites,node-name=recorded,file=disk,log=log,log-sector-size={SECTOR}"),
            *("--export", f"type=fuse,id=export,node-name=recorded,mountpoint={self.export},writable=on,growable=off"),
            *("--daemonize", "--pidfile", identity),
        ]
        with self.scratch.whole():
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # A signal to the rig's group must not end it half started.
            )
            if done.returncode != 0:
                said = done.stderr.decode(errors="replace").strip().replace("\n", "; ")
                raise CannotRun(f"qemu-storage-daemon does not serve: {said}")
            with open(identity, encoding="ascii") as file:
                process = int(file.read())
            os.unlink(identity)
            self.scratch.undo(end_process, process)


def end_process(process):
    """Ends a process of ours and waits until it is gone; by force where it does not listen."""
    handle = os.pidfd_open(process)
    for number, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 20)):
        signal.pidfd_send_signal(handle, number)
        if select.select([handle], [], [], patience)[0]:
            break
    os.close(handle)
    os.waitpid(process, 0)


def detach(backing):
    """Detaches the loop devices of a file of ours."""
    for line in call("losetup", "--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE").splitlines():
        name, _, file = line.partition(" ")
        if file.strip() == backing:
            call("losetup", "--detach", name)


def copy_sparse(source, target):
    """Makes target a copy of source, holes as holes."""
    with open(source, "rb", buffering=0) as old, open(target, "wb", buffering=0) as new:
        size = os.fstat(old.fileno()).st_size
        new.truncate(size)
        begin = 0
        while True:
            try:
                begin = os.lseek(old.fileno(), begin, os.SEEK_DATA)
            except OSError:  # ENXIO: no data from here on (lseek(2))
                return
            end = os.lseek(old.fileno(), begin, os.SEEK_HOLE)
            os.lseek(new.fileno(), begin, os.SEEK_SET)
            while begin < end:
                sent = os.sendfile(new.fileno(), old.fileno(), begin, end - begin)
                if sent == 0:
                    raise OSError(f"{source} shrank while it was copied")
                begin += sent
