"""The same command twice at once: one run waits before a system call while the other runs from its first to its last.

One of them makes the output, and the other says that it cannot; with --force the second may do it again. A file that
has its name is whole at every moment.
"""

import time
from functools import partial

import files
from harness import SECONDS_PER_RUN


def cases(reference):
    for call in reference.calls:
        for options in ([], ["--force"]):
            mode = "two at once, forced" if options else "two at once"
            yield mode, str(call), partial(check, reference, call, options)


def check(reference, call, options, folder):
    before, command = files.look(folder), reference.scenario.command + options
    ready, go = folder.with_suffix(".ready"), folder.with_suffix(".go")
    waiting = reference.condprog.start(folder, command, at=call.number, how="wait", ready=ready, go=go)
    end = time.monotonic() + SECONDS_PER_RUN
    while not ready.exists() and waiting.poll() is None and time.monotonic() < end:
        time.sleep(0.001)
    passing = reference.condprog.run(folder, command)
    between = files.look(folder)
    go.touch()
    runs = [reference.condprog.finish(waiting), passing]
    after = files.look(folder)
    failures = [fault for run in runs if (fault := run.fault())]
    failures += files.changes(before, after, reference.may_gain_links)
    failures += reference.half_made(between) + reference.half_made(after)
    statuses = [run.status for run in runs]
    if statuses == [0, 0] and not options:
        failures.append("both ended well")
    if passing.status == 0:
        # Beside working files of the one that waits.
        got = {name: entry for name, entry in between.items() if name in reference.whole}
        failures += [f"the second ended well, but {what}" for what in files.differences(reference.whole, got)]
    if runs[0].status != 0 and passing.status == 0:
        made = {name: between[name] for name in reference.made & between.keys() if between[name].kind == "file"}
        failures += [f"the first failed, but {what}" for what in files.changes(made, after, reference.made)]
    if 0 in statuses:
        failures += [f"one ended well, but {what}" for what in files.differences(reference.whole, after)]
    elif not failures:
        run = reference.condprog.run(folder, command)
        if run.status != 0:
            return [f"both failed, and a third run too: {run}"]
        failures += [f"both failed; a third: {what}" for what in files.differences(reference.whole, files.look(folder))]
    return failures
