"""A command that is killed at a system call, or whose call fails; and the same command after it.

| | what must hold |
|---|---|
| a | files that were there before are what they were: content, inode, mode, time, links |
| b | no output has its name before it is whole; no unfinished file passes `verify` |
| c | the same command, given again, ends well and leaves what an undisturbed run leaves, and nothing else |
| d | so it does with --force, which messages suggest |
| e | a failed call gives status 1 and a message with the file's name, or an output that is right |
"""

import os

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
        for call in reference.calls:
            if mode in ("torn", "short") and call.name not in WRITES:
                continue
            check = kill if mode in KILLS else fail
            yield mode, str(call), lambda folder, check=check, mode=mode, call=call: check(reference, folder, mode, call)


def ended_at(reference, log, call):
    """The shim's own account: the call was the one that was meant."""
    last = log.read_text().splitlines()[-1].split("\t")
    assert last[:2] == [str(call.number), call.name], f"{reference.scenario.name}: met {last}, expected {call}"


def kill(reference, folder, mode, call):
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


def fail(reference, folder, mode, call):
    before = files.look(folder)
    how = mode if mode == "short" else number_of(mode)
    run = reference.condprog.run(folder, reference.scenario.command, at=call.number, how=how)
    failures = check_state(reference, folder, before)
    if fault := run.fault():
        failures.append(f"e: {fault}")
    elif run.status == 0:
        return failures + [f"e: ended well, but {what}" for what in files.differences(reference.whole, files.look(folder))]
    elif mode == "short" or mode == "EINTR" and call.name in RETRIED:
        failures.append(f"e: nothing was wrong, but {run}")
    # A working file stands for its output.
    elif not any(os.path.basename(name) in run.stderr for name in (*call.files, *reference.made)):
        failures.append(f"e: the message names no file: {run}")
    return failures + check_again(reference, folder)


def check_state(reference, folder, before):
    state = files.look(folder)
    failures = [f"a: {what}" for what in files.changes(before, state, reference.may_gain_links)]
    failures += [f"b: {what}" for what in reference.half_made(state) + reference.passes_for_whole(folder, state)]
    return failures


def check_again(reference, folder):
    """The same command in the folder as it was left, and with --force in a copy of it; once for every state in which a
    folder can be left, however many faults leave it so."""
    state = files.fingerprint(files.look(folder))
    if state not in reference.seen:
        twin = folder.with_name(f"{folder.name}-forced")
        files.copy(folder, twin)
        reference.seen[state] = again(reference, folder, "c", []) + again(reference, twin, "d", ["--force"])
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
