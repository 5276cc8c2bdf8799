"""A command that is killed at a system call, or whose call fails; and the same command after it.

| | what must hold |
|---|---|
| a | files that were there before are what they were: content, inode, mode, time, links |
| b | no output has its name before it is whole; no unfinished file passes `verify` |
| c | the same command, given again, ends well and leaves what an undisturbed run leaves, and nothing else |
| d | so it does with --force, which messages suggest |
| e | another command with the same output may refuse; it, or it with --force, ends well and makes what it should |
| f | a failed call gives status 1 and a message with the file's name, or an output that is right |
"""

import os
from functools import partial

import files
from harness import KILLED, number_of

WRITES = {"write", "pwrite", "writev", "pwritev", "pwritev2", "copy_file_range", "sendfile", "splice"}
# Calls that a signal may cut short, and that are then to be made again.
RETRIED = {"open", "openat", "openat2", "write", "pwrite", "writev", "pwritev", "fsync", "fdatasync", "ftruncate"}
KILLS = ["before", "after", "torn", "twice"]
ERRORS = ["ENOSPC", "EIO", "EINTR", "short"]


def cases(reference):
    """Every mode at every call: `(mode, what, check)`."""
    for mode in KILLS + ERRORS:
        check = kill if mode in KILLS else fail
        for call in reference.calls:
            if mode not in ("torn", "short") or call.name in WRITES:
                yield mode, str(call), partial(check, reference, mode, call)


def ended_at(reference, log, call):
    """The shim's own account: the call was the one that was meant."""
    met = [line.split("\t")[1] for line in log.read_text().splitlines() if line.startswith(f"{call.number}\t")]
    assert met == [call.name], f"{reference.scenario.name}: met {met}, expected {call}"


def kill(reference, mode, call, folder):
    log, before = folder.with_suffix(".log"), files.look(folder)
    how = "before" if mode == "twice" else mode
    run = reference.condprog.run(folder, reference.scenario.command, at=call.number, how=how, log=log)
    assert run.status == KILLED, f"{reference.scenario.name}, {mode} {call}: not killed: {run}"
    ended_at(reference, log, call)
    if mode == "twice":
        # The run that goes on is killed too, each time elsewhere.
        number = call.number * 7 % len(reference.calls) + 1
        run = reference.condprog.run(folder, reference.scenario.command, at=number, how="after")
        fault = None if run.status == KILLED else run.fault()
        if fault:
            return [f"c: the same command again, to be killed at its call {number}: {fault}"]
    return check_state(reference, folder, before) + check_again(reference, folder)


def fail(reference, mode, call, folder):
    before = files.look(folder)
    how = mode if mode == "short" else number_of(mode)
    run = reference.condprog.run(folder, reference.scenario.command, at=call.number, how=how)
    failures = check_state(reference, folder, before)
    if fault := run.fault():
        failures.append(f"f: {fault}")
    elif run.status == 0:
        different = files.differences(reference.whole, files.look(folder))
        return failures + [f"f: ended well, but {what}" for what in different]
    elif mode == "short" or mode == "EINTR" and call.name in RETRIED:
        failures.append(f"f: nothing was wrong, but {run}")
    # A working file stands for its output.
    elif not any(os.path.basename(name) in run.stderr for name in (*call.files, *reference.made)):
        failures.append(f"f: the message names no file: {run}")
    return failures + check_again(reference, folder)


def check_state(reference, folder, before):
    state = files.look(folder)
    failures = [f"a: {what}" for what in files.changes(before, state, reference.may_gain_links)]
    failures += [f"b: {what}" for what in reference.half_made(state) + reference.passes_for_whole(folder, state)]
    return failures


def check_again(reference, folder):
    """What comes after a fault: the same command in the folder as it was left, and others in copies of it. Once for
    every state in which a folder can be left, however many faults leave it so."""
    state = files.fingerprint(files.look(folder))
    if state not in reference.seen:
        copies = [folder.with_name(f"{folder.name}-{what}") for what in ("forced", "other")]
        for copied in copies:
            files.copy(folder, copied)
        failures = again(reference, folder, "c", []) + again(reference, copies[0], "d", ["--force"])
        reference.seen[state] = failures + another(reference, copies[1])
    return reference.seen[state]


def again(reference, folder, letter, options):
    what = "the same command again" + (", with --force" if options else "")
    before = files.look(folder)
    was_whole = not files.differences(reference.whole, before)
    sources = {name: before[name] for name in before.keys() & reference.names}
    run = reference.condprog.run(folder, [*reference.scenario.command, *options])
    after = files.look(folder)
    failures = [f"a: {what}: {change}" for change in files.changes(sources, after, reference.may_gain_links)]
    # Nothing is left to do, and without --force nothing is done.
    refused = not options and was_whole and run.code == "output-exists"
    if run.fault() or run.status != 0 and not refused:
        failures.append(f"{letter}: {what}: {run.fault() or run}")
    else:
        failures += [f"{letter}: {what}: {left}" for left in files.differences(reference.whole, after)]
    return failures


def another(reference, folder):
    """A user who has decided otherwise: another command, and with --force where that is refused."""
    before, failures = files.look(folder), []
    sources = {name: before[name] for name in before.keys() & reference.names}
    for options in ([], ["--force"]):
        what = "another command" + (", with --force" if options else "")
        run = reference.condprog.run(folder, [*reference.scenario.other, *options])
        after = files.look(folder)
        failures += [f"a: {what}: {change}" for change in files.changes(sources, after, reference.may_gain_links)]
        if fault := run.fault():
            return [*failures, f"e: {what}: {fault}"]
        if run.status == 0:
            # What the first command has left under names that this one has no use for may stay.
            old = before.keys() - reference.other.keys()
            got = {name: entry for name, entry in after.items() if name not in old}
            return failures + [f"e: {what}: {left}" for left in files.differences(reference.other, got)]
    return [*failures, f"e: {what}: {run}"]
