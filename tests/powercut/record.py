"""One recording: a plan carried out by a driver on a recorded disk.

Answers for: the order of requests, noting how many commands the disk had been given at the begin and at the answer of
each, and the other processes beside the driver.
"""

import os
import random as randomness
import tempfile
import threading
from dataclasses import dataclass, replace

from driver import Driver, DriverFault
from plan import Planner
from recorder import Recorder
from scratch import call


NEVER = float("inf")


@dataclass(frozen=True)
class Variant:
    """How the workspace is used while it is recorded."""

    name: str
    outsider: bool  # another process replaces and removes files between the requests, and writes all the time
    together: bool  # as many requests at once as there are lanes


ALONE = Variant("alone", False, False)
BESIDE = Variant("beside", True, False)
TOGETHER = Variant("together", True, True)
VARIANTS = (ALONE, BESIDE, TOGETHER)


@dataclass
class Recording:
    """A recorded disk that is no longer mounted, and what was done on it."""

    recorder: Recorder
    lanes: list
    initial: dict
    begin: int  # commands before the workspace was opened for the first time
    end: int  # and after its last answer

    def positions(self):
        """Every moment at which the power can be cut."""
        return range(self.begin, self.end + 1)

    def answers(self):
        """The moments at which something has just been promised."""
        return [step.end for lane in self.lanes for step in lane if step.end <= self.end]

    def under_way(self):
        """Every moment at which a request was under way."""
        requests = (step for lane in self.lanes for step in lane if step.request)
        return sorted({position for step in requests for position in range(step.begin, step.end)})

    def barriers(self, name):
        """FLUSH and FUA commands of each answered step of that name."""
        commands = self.recorder.log.commands
        steps = [step for lane in self.lanes for step in lane if step.name == name]
        return sorted(sum(one.is_barrier() for one in commands[step.begin : step.end]) for step in steps)


def record(scratch, file_system, command, variant, steps, seed, without=None):
    """Carries out a plan and leaves its disk and log in the scratch's memory."""
    random = randomness.Random(f"plan {seed} {variant.name}")
    planner = Planner(random, variant.outsider)
    recorder = Recorder(scratch, file_system, "first")
    with scratch.inner():
        recorder.start()
        root = os.path.join(recorder.mount, "root")
        os.mkdir(root)
        os.mkdir(os.path.join(recorder.mount, "state"), 0o700)
        make_world(root, planner.initial)
        call("sync", "--file-system", recorder.mount)
        lanes = planner.steps(steps)
        begin = recorder.log.position()
        agent_state = tempfile.mkdtemp(prefix="agent-", dir=scratch.memory)
        threads = len(lanes) if variant.together else 1
        with Driver(scratch, command, recorder.mount, agent_state, threads, without) as driver:
            with Noise(root, variant.outsider):
                Conductor(driver, recorder.log, root, lanes, threads, random).run()
            end = recorder.log.position()
    return Recording(recorder, lanes, planner.initial, begin, end)


def record_recovery(scratch, recording, image, position, command):
    """Opens the workspace on a cut disk, and retries what was under way; what was answered before the cut stays so."""
    file_system = recording.recorder.file_system
    recorder = Recorder(scratch, file_system, "second")
    lanes = [[replace(step) for step in lane] for lane in recording.lanes]
    under_way = []
    with scratch.inner():
        recorder.start(image)
        begin = recorder.log.position()
        for step in (step for lane in lanes for step in lane):
            if step.begin <= position < step.end:
                under_way.append(step)
                step.begin, step.end = begin, NEVER
            elif step.end <= position:
                step.begin = step.end = begin
            else:
                step.begin = step.end = NEVER
        agent_state = tempfile.mkdtemp(prefix="agent-", dir=scratch.memory)
        with Driver(scratch, command, recorder.mount, agent_state) as driver:
            for step in under_way:
                if step.request:
                    step.answer = driver.ask(step.request)
                    step.end = recorder.log.position()
                    if not step.answer.get("ok"):
                        raise DriverFault(f"{step.name} {step.request['path']}: {step.answer}")
            end = recorder.log.position()
    return Recording(recorder, lanes, recording.initial, begin, end)


class Conductor:
    """Sends the steps of all lanes, so many at once, each lane's in order."""

    def __init__(self, driver, log, root, lanes, at_once, random):
        self.driver, self.log, self.root, self.at_once, self.random = driver, log, root, at_once, random
        self.waiting = [list(reversed(lane)) for lane in lanes]
        self.under_way = {}  # number of the request: (lane, step)

    def run(self):
        """Until every step is answered."""
        while any(self.waiting) or self.under_way:
            busy = {lane for lane, _ in self.under_way.values()}
            idle = [lane for lane, steps in enumerate(self.waiting) if steps and lane not in busy]
            if idle and len(self.under_way) < self.at_once:
                self._begin(self.random.choice(idle))
            else:
                self._finish()

    def _begin(self, lane):
        step = self.waiting[lane].pop()
        step.begin = self.log.position()
        if step.request is None:
            outside(self.root, step)
            step.end = self.log.position()
        else:
            step.end = NEVER
            self.under_way[self.driver.send(step.request)] = (lane, step)

    def _finish(self):
        number, answer = self.driver.receive()
        lane, step = self.under_way.pop(number)
        step.end, step.answer = self.log.position(), answer
        if not answer.get("ok"):
            raise DriverFault(f"{step.name} {step.request['path']}: {answer.get('error')}: {answer.get('message')}")
        if answer.get("durable") is False:
            raise DriverFault(f"{step.name} {step.request['path']}: answered, but not durable")
        if answer.get("replayed"):
            raise DriverFault(f"{step.name} {step.request['path']}: replayed, but never asked before")
        following = self.waiting[lane]
        if following and following[-1].request is None:
            # At once, so that the driver's lazy work after the answer has not been done yet.
            self._begin(lane)


def outside(root, step):
    """Another process's durable change of one file: replaced by rename(2), or removed."""
    act, name = step.outside
    path = root + name
    if act == "remove":
        os.unlink(path)
    else:
        node = step.after[name]
        temporary = os.path.join(root, f"noise-{step.lane}")
        descriptor = os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        os.fchmod(descriptor, node.mode)
        with open(descriptor, "wb") as file:
            file.write(node.data)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, path)
        sync_directory(root)
    sync_directory(os.path.dirname(path))


class Noise:
    """Other files in the same directory that are written and synced all the time, so that the file system makes things
    durable at moments that nobody chose."""

    def __init__(self, root, wanted):
        self.root, self.wanted = root, wanted
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.error = None

    def __enter__(self):
        if self.wanted:
            self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.ended.set()
        if self.wanted:
            self.thread.join()
        if kind is None and self.error:
            raise self.error

    def _run(self):
        random = randomness.Random()
        try:
            # Pauses spread the syncs over all moments of a request; nothing waits for them.
            while not self.ended.wait(random.expovariate(1) * 0.01):
                path = os.path.join(self.root, f"noise{random.randrange(3)}")
                with open(path, "ab") as file:
                    file.write(b"n" * random.randrange(9000))
                    file.flush()
                    if random.random() < 0.4:
                        os.fsync(file.fileno())
                if random.random() < 0.2:
                    sync_directory(self.root)
                if random.random() < 0.2:
                    os.rename(path, os.path.join(self.root, "noise-old"))
        except OSError as error:
            self.error = error


def make_world(root, world):
    """Makes the files that are there at the begin."""
    for path in sorted(world):
        node, place = world[path], root + path
        if node.kind == "directory":
            os.mkdir(place)
        else:
            with open(place, "wb") as file:
                file.write(node.data)
        os.chmod(place, node.mode)


def sync_directory(path):
    """fsync(2) of a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
