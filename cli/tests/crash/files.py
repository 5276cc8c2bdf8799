"""What is in a folder, to the bit, and copies of folders."""

import hashlib
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
}


@dataclass(frozen=True)
class Entry:
    kind: str
    mode: int
    inode: int
    links: int
    changed: int
    """When its content last changed, in nanoseconds."""
    content: str
    """A digest, or where a symbolic link leads."""
    head: bytes
    """The first bytes of a file."""

    def same_content(self, other):
        return (self.kind, self.mode, self.content) == (other.kind, other.mode, other.content)


def look(folder):
    """All that is in a folder, by its name below it. Nothing but regular files is opened, no link is followed."""
    found = {}
    pending = [str(folder)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                kind, content, head = KINDS[stat.S_IFMT(about.st_mode)], "", b""
                if kind == "folder":
                    pending.append(entry.path)
                elif kind == "symbolic link":
                    content = os.readlink(entry.path)
                elif kind == "file":
                    data = Path(entry.path).read_bytes()
                    content, head = hashlib.sha256(data).hexdigest(), data[:8]
                mode, name = stat.S_IMODE(about.st_mode), os.path.relpath(entry.path, folder)
                found[name] = Entry(kind, mode, about.st_ino, about.st_nlink, about.st_mtime_ns, content, head)
    return found


def fingerprint(state):
    """Equal for two folders in which there is the same, whenever it was written."""
    one_file, found = {}, []
    for name, entry in sorted(state.items()):
        first = one_file.setdefault(entry.inode, name) if entry.kind == "file" else name
        found.append((name, first, entry.kind, entry.mode, entry.content))
    return tuple(found)


def copy(folder, to):
    """Copies a folder of files, folders and symbolic links, with their modes and times. Files that were one under
    several names are so in the copy."""
    first_names = {}
    for path, folders, files in os.walk(folder):
        target = os.path.join(to, os.path.relpath(path, folder))
        os.makedirs(target, exist_ok=True)
        for name in files + [name for name in folders if os.path.islink(os.path.join(path, name))]:
            source, copied = os.path.join(path, name), os.path.join(target, name)
            about = os.lstat(source)
            if about.st_ino in first_names:
                os.link(first_names[about.st_ino], copied, follow_symlinks=False)
                continue
            if stat.S_ISLNK(about.st_mode) or stat.S_ISREG(about.st_mode):
                shutil.copy2(source, copied, follow_symlinks=False)
            else:
                os.mknod(copied, about.st_mode)
            first_names[about.st_ino] = copied
    # From the innermost folder: what is put into a folder changes its time.
    for path, _, _ in os.walk(folder, topdown=False):
        shutil.copystat(path, os.path.join(to, os.path.relpath(path, folder)))


def changes(before, after, may_gain_links=frozenset()):
    """What has happened to entries that were there before, in words; nothing should."""
    found = []
    for name, was in sorted(before.items()):
        now = after.get(name)
        if now is None:
            found.append(f"{name} is gone")
            continue
        for what in ("kind", "inode", "mode", "content", "changed"):
            if getattr(was, what) != getattr(now, what):
                found.append(f"{name} has another {what}" if what != "changed" else f"{name} was written to")
                break
        else:
            gained = now.links - was.links
            # Names that an output had of them go with it.
            if was.kind == "file" and gained != 0 and name not in may_gain_links:
                found.append(f"{name} has {now.links} links, had {was.links}")
    return found


def differences(expected, got):
    """How what is in a folder differs from what should be, in words."""
    found = [f"{name} is left" for name in sorted(got.keys() - expected.keys())]
    found += [f"{name} is missing" for name in sorted(expected.keys() - got.keys())]
    both = sorted(expected.keys() & got.keys())
    return found + [f"{name} differs" for name in both if not expected[name].same_content(got[name])]
