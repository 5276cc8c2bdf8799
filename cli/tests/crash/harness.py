"""A command under the shim, and what an undisturbed run of it makes."""

import errno
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import files
import scenarios

# A run takes a tenth of a second. One that hangs is a failure.
SECONDS_PER_RUN = 10
KILLED = -9


@dataclass(frozen=True)
class Call:
    """A system call as the shim counts it."""

    number: int
    name: str
    files: tuple
    """Relative to the folder of the run."""

    def __str__(self):
        return f"call {self.number}, {self.name} {' '.join(self.files)}".rstrip()


@dataclass(frozen=True)
class Run:
    status: int | None
    """`None` for a run that did not end in time."""
    stdout: str
    stderr: str

    @property
    def code(self):
        """The error's short name, of a run with --json."""
        try:
            return json.loads(self.stdout)["error"]["code"]
        except (ValueError, KeyError, TypeError):
            return None

    def fault(self):
        """How it ended in a way that none should: with a signal, in a panic, not at all; or `None`."""
        if self.status is None:
            return f"did not end within {SECONDS_PER_RUN} s"
        if "panicked" in self.stderr:
            return f"panicked: {self.stderr.strip()}"
        if self.status not in (0, 1):
            return f"ended with status {self.status}: {self.stderr.strip()}"
        if self.status == 1 and not self.stderr.startswith("error: "):
            return f"failed without a message: {self.stderr.strip()!r}"
        return None

    def __str__(self):
        return "ended well" if self.status == 0 else f"status {self.status}, {self.stderr.strip().splitlines()}"


class Condprog:
    def __init__(self, program, shim):
        self.program, self.shim = str(Path(program).resolve()), str(Path(shim).resolve())

    def start(self, folder, arguments, **plan):
        """Starts it in a folder. `plan` is for the shim, which is there only when there is a plan."""
        environment = os.environ | {f"CRASH_{name.upper()}": str(value) for name, value in plan.items()}
        if plan:
            environment["LD_PRELOAD"] = self.shim
        command = [self.program, *arguments, "--json", "--quiet"]
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(command, cwd=folder, env=environment, stdin=none, stdout=pipe, stderr=pipe)

    def finish(self, process):
        try:
            stdout, stderr = process.communicate(timeout=SECONDS_PER_RUN)
            status = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            status = None
        return Run(status, stdout.decode(errors="replace"), stderr.decode(errors="replace"))

    def run(self, folder, arguments, **plan):
        return self.finish(self.start(folder, arguments, **plan))


def read_log(log, folder):
    calls = []
    for line in log.read_text().splitlines():
        number, name, *names = line.split("\t")
        inside = (os.path.relpath(os.path.join(folder, name), folder) for name in names if name)
        calls.append(Call(int(number), name, tuple(inside)))
    return calls


class Reference:
    """A scenario: its sources, and what an undisturbed run makes of them."""

    def __init__(self, condprog, scenario, work):
        self.condprog, self.scenario, self.work = condprog, scenario, work / scenario.name
        self.work.mkdir()
        self.sources = self.work / "sources"
        self.sources.mkdir()
        scenario.make(condprog.program, self.sources)
        self.names = files.look(self.sources).keys()
        # What the same command makes of states in which a fault has left the folder: failures by fingerprint.
        self.seen = {}
        self.may_gain_links = scenarios.weights(self.sources) if scenario.links_weights else frozenset()
        # What even an undisturbed run does to its sources, in words.
        self.harm = []
        self.calls, self.whole = self._log("first", scenario.command)
        again, _ = self._log("second", scenario.command)
        _, self.other = self._log("other", scenario.other)
        names = [[call.name for call in calls] for calls in (self.calls, again)]
        assert names[0] == names[1], f"{scenario.name}: other calls the second time"
        # Those that are the same in every run.
        self.written = {name for call in self.calls for name in call.files} - self.names - {"."}
        self.written &= {name for call in again for name in call.files}
        assert all(not name.startswith("..") for name in self.written), self.written
        assert all(call.name != "mmap" for call in self.calls), f"{scenario.name}: writes through a mapping"
        self.made = self.whole.keys() - self.names

    def _log(self, name, command):
        """The calls of a run that nothing happens to, and what is in the folder then."""
        folder, log = self.fresh(name), self.work / f"{name}.log"
        before = files.look(folder)
        run = self.condprog.run(folder, command, log=log)
        assert run.status == 0, f"{self.scenario.name}: {run}"
        after = files.look(folder)
        self.harm += files.changes(before, after, self.may_gain_links)
        shutil.rmtree(folder)
        return read_log(log, folder), after

    def fresh(self, name):
        """A folder with the sources."""
        folder = self.work / name
        files.copy(self.sources, folder)
        return folder

    def half_made(self, state):
        """What is wrong with outputs that have their names already, in words."""
        found = []
        there = sorted(name for name in self.made if name in state)
        for name in there:
            if not state[name].same_content(self.whole[name]):
                found.append(f"{name} has its name and is not whole")
        missing = sorted(self.made - state.keys())
        if self.scenario.last in state and missing:
            found.append(f"{self.scenario.last} is there, {missing} are not")
        return found

    def passes_for_whole(self, folder, state):
        """Working files that `verify` says are sound though they are not what any output is."""
        outputs = {self.whole[name].content for name in self.made}
        found = []
        for name in sorted(state.keys() - self.names - self.made):
            entry = state[name]
            # An unfinished file starts with zeros, a journal is text.
            is_other = entry.kind != "file" or not entry.head.strip(b"\0") or entry.head[:1] == b"{"
            if is_other or entry.content in outputs:
                continue
            if self.condprog.run(folder, ["verify", name]).status == 0:
                found.append(f"{name} is unfinished, and verify says that it is sound")
        return found


def number_of(name):
    return getattr(errno, name)
