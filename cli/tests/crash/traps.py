"""What a command does when a name that it would write is taken: by a link to a source or to any other file, by a file
that is not its own, by what is no file, by a source itself.

Nothing that was there may change. With --force, what it would replace may go, if it is a file or a link, but never what
a link leads to. A command that does not refuse must make the right output; one that refuses leaves nothing, and works
when the trap is gone.
"""

import os
import shutil
import stat
from functools import partial

import files
from scenarios import UNRELATED

REPLACEABLE = {"a symbolic link to a source", "a symbolic link to another file", "a symbolic link to nothing"}
REPLACEABLE |= {"a hard link to a source", "a hard link to another file", "a file"}
KINDS = [*sorted(REPLACEABLE), "a FIFO", "a socket", "a folder", "the source"]


def cases(reference):
    for name in sorted(reference.written | reference.made):
        for kind in KINDS:
            if kind == "a folder" and name in reference.whole and reference.whole[name].kind == "folder":
                continue  # an output may be put into one
            if kind == "the source" and not is_one_file(reference):
                continue
            for options in ([], ["--force"]):
                mode = "trap, forced" if options else "trap"
                yield mode, f"{name} is {kind}", partial(check, reference, name, kind, options)


def is_one_file(reference):
    return reference.scenario.input in reference.scenario.command


def put(reference, folder, name, kind):
    """Lays a trap."""
    path, source = folder / name, folder / reference.scenario.input
    path.parent.mkdir(parents=True, exist_ok=True)
    target = source.resolve() if kind.endswith("a source") else folder / UNRELATED
    if kind == "a symbolic link to nothing":
        path.symlink_to("nothing")
    elif kind.startswith("a symbolic link"):
        path.symlink_to(os.path.relpath(target, path.parent))
    elif kind.startswith("a hard link"):
        os.link(target, path)
    elif kind == "a file":
        path.write_text("somebody's own\n")
    elif kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif kind == "a folder":
        path.mkdir()
        (path / "kept").write_text("somebody's own\n")
    else:
        source.rename(path)


def check(reference, name, kind, options, folder):
    put(reference, folder, name, kind)
    command = list(reference.scenario.command)
    if kind == "the source":
        command[command.index(reference.scenario.input)] = name
    before = files.look(folder)
    run = reference.condprog.run(folder, command + options)
    after = files.look(folder)
    # A link that is replaced is one fewer; a folder above it is written to, and is the output's.
    above = {str(parent) for parent in (folder / name).relative_to(folder).parents}
    kept = {there: entry for there, entry in before.items() if there not in above}
    if options and kind in REPLACEABLE:
        del kept[name]
    changes = files.changes(kept, after, reference.may_gain_links)
    if options and kind.startswith("a hard link"):
        changes = [change for change in changes if not change.endswith("links, had 2")]
    failures = list(changes)
    if fault := run.fault():
        return failures + [fault]
    if run.status == 0:
        expected = {there: entry for there, entry in reference.whole.items() if there in reference.made}
        got = {there: entry for there, entry in after.items() if there not in before or there in expected}
        return failures + [f"ended well, but {what}" for what in files.differences(expected, got)]
    new = sorted(there for there in after.keys() - before.keys() if after[there].kind != "folder")
    failures += [f"refused, but {there} is left" for there in new]
    # Of what lies in its way, of what it would make, or of the source that a link leads to.
    named = [name, reference.scenario.input, *reference.made]
    if not any(os.path.basename(file) in run.stderr for file in named):
        failures.append(f"refused, but the message names no file: {run}")
    if kind == "the source" or failures:
        return failures
    if (folder / name).is_dir() and not (folder / name).is_symlink():
        shutil.rmtree(folder / name)
    else:
        (folder / name).unlink(missing_ok=True)
    run = reference.condprog.run(folder, command + options)
    if run.status != 0:
        return [f"the same command when the trap is gone: {run}"]
    return [f"when the trap is gone: {what}" for what in files.differences(reference.whole, files.look(folder))]
