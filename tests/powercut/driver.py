"""A process that changes the workspace, spoken to by lines.

Answers for: starting it, requests and answers as JSON, one a line, and its end. See tests/src/bin/powercut_driver.rs for
the words; reference.py speaks them too. A driver that dies, hangs or talks nonsense is a `DriverFault`, never an answer.
"""

import json
import os
import select
import subprocess
import time

PATIENCE_SECONDS = 60


class DriverFault(Exception):
    """The driver did not do its part."""


class Driver:
    """One driver on one mounted file system. Use as a context: it is ended, by force where need be."""

    def __init__(self, scratch, command, mount, agent_state, threads=1, without=None):
        words = [*command, "--root", os.path.join(mount, "root"), "--agent-state", agent_state]
        words += ["--threads", str(threads)]
        words += ["--without", without] if without else []
        with scratch.whole():
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            scratch.undo(end_child, self.process)
        self.rest = b""
        self.next_id = 0

    def __enter__(self):
        opened = self._line()
        if not opened.get("open"):
            raise DriverFault(f"the workspace does not open: {opened.get('message')}")
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.finish()
        finally:
            end_child(self.process)

    def finish(self):
        """Lets it end by itself."""
        self.process.stdin.close()
        try:
            status = self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise DriverFault("the driver does not end") from error
        if status != 0:
            raise DriverFault(f"the driver ended with {status}")

    def send(self, request):
        """Sends a request and returns the number that its answer will bear."""
        self.next_id += 1
        line = json.dumps({"id": self.next_id, **request}) + "\n"
        try:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise DriverFault("the driver is gone") from error
        return self.next_id

    def receive(self):
        """The next answer, as (number, answer)."""
        answer = self._line()
        if "id" not in answer:
            raise DriverFault(f"no answer: {answer}")
        return answer.pop("id"), answer

    def ask(self, request):
        """A request and its answer; nothing else may be under way."""
        sent = self.send(request)
        number, answer = self.receive()
        if number != sent:
            raise DriverFault("an answer to nothing")
        return answer

    def _line(self):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while b"\n" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise DriverFault("the driver does not answer")
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                raise DriverFault(f"the driver ended with {self.process.wait(PATIENCE_SECONDS)}")
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError as error:
            raise DriverFault(f"the driver says {line[:200]!r}") from error


def end_child(process):
    """Ends a child by force, where it is still there."""
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        try:
            pipe.close()
        except BrokenPipeError:  # What was not sent to it is lost with it.
            pass
