#!/usr/bin/env python3
"""Writes THIRD-PARTY.md beside this script: the crates in the program, their licenses, and the texts of these.

    python3 cli/third_party.py            # after a change of Cargo.lock
    python3 cli/third_party.py --check    # fails when it would write something else

The crates are those that `cargo metadata` finds on the way of normal dependencies from the package `condprog-cli`, with its
default features, for Linux on x86-64. Crates that only build or test it are left out; macros are in, since what they
write is. Where a crate may be had under several licenses the first of `ACCEPTED` is taken. Nothing is fetched that a
build does not need.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTICE = ROOT / "cli/THIRD-PARTY.md"
TARGET = "x86_64-unknown-linux-gnu"
# Licenses that a crate may have, the preferred first, each with words that its text has and no other's.
ACCEPTED = {
    "Apache-2.0": r"Apache License\W+Version 2\.0",
    "MIT": r"Permission is hereby granted, free of charge, to any person obtaining a",
    "BSD-2-Clause": r"Redistribution and use in source and binary forms(?!.*Neither the name)",
    "BSD-3-Clause": r"Redistribution and use in source and binary forms.*Neither the name",
    "ISC": r"Permission to use, copy, modify, and/or distribute",
    "Zlib": r"Altered source versions must be plainly marked",
    "Unicode-3.0": r"UNICODE LICENSE V3",
    "OFL-1.1": r"SIL OPEN FONT LICENSE",
    "Ubuntu-font-1.0": r"UBUNTU FONT LICENCE Version 1\.0",
}
# For crates whose folder has no text of it.
MIT = """\
Copyright (c) {}

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""
INTRODUCTION = """\
# Third parties

The program `condprog` is under the Apache License 2.0 (`LICENSE`). As it is built for Linux on x86-64 with its default
features it contains the crates below, and Rust's standard library (MIT or Apache-2.0, copyright the Rust Project's
developers). Where a crate has several licenses to choose from, the one that is used is named. `cli/third_party.py`
writes this file, and CI checks that it fits `Cargo.lock`.

"""


def metadata():
    command = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={TARGET}"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def crates(found):
    """The packages of others that become part of the program."""
    packages = {package["id"]: package for package in found["packages"]}
    needs = {
        node["id"]: [need["pkg"] for need in node["deps"] if any(kind["kind"] is None for kind in need["dep_kinds"])]
        for node in found["resolve"]["nodes"]
    }
    pending = [package["id"] for package in packages.values() if package["name"] == "condprog-cli"]
    reached = set(pending)
    while pending:
        more = set(needs[pending.pop()]) - reached
        reached |= more
        pending += more
    others = [packages[id] for id in reached if packages[id]["source"] is not None]
    return sorted(others, key=lambda package: (package["name"], package["version"]))


def chosen(expression):
    """The licenses of an SPDX expression that are to be kept, or `None` when they are not accepted."""
    tokens = re.findall(r"[()]|[\w.+-]+", expression.replace("/", " OR "))

    def either():
        choices = [both()]
        while tokens[:1] == ["OR"]:
            tokens.pop(0)
            choices.append(both())
        fitting = [choice for choice in choices if choice is not None]
        return min(fitting, key=lambda names: (len(names), [list(ACCEPTED).index(name) for name in names]), default=None)

    def both():
        names = one()
        while tokens[:1] == ["AND"]:
            tokens.pop(0)
            more = one()
            names = None if names is None or more is None else names + more
        return names

    def one():
        token = tokens.pop(0)
        if token == "(":
            names = either()
            tokens.pop(0)
            return names
        if tokens[:1] == ["WITH"]:
            del tokens[:2]
            return None  # the same license without its exception has always been a choice as well
        return [token] if token in ACCEPTED else None

    return either()


def tidy(text):
    """The text without what differs between copies of it and means nothing."""
    lines = [line.rstrip() for line in text.replace("\f", "").splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def texts(package, names):
    """The texts of licenses that a crate carries, and of its notices: `(license, text)`."""
    folder, own = Path(package["manifest_path"]).parent, ROOT / "LICENSE"
    files = sorted(path for path in folder.rglob("*") if path.is_file() and is_legal(path))
    read = {path: tidy(path.read_text(errors="replace")) for path in files}
    used = set()
    for name in names:
        pattern = re.compile(ACCEPTED[name], re.DOTALL | re.IGNORECASE)
        fitting = [text for text in read.values() if pattern.search(re.sub(r"\s+", " ", text))]
        # Where one text has several licenses another has this one alone.
        text = min(fitting, key=len, default=None)
        if name == "Apache-2.0":
            text = tidy(own.read_text())  # the same for all
        elif text is None and name == "MIT" and package["authors"]:
            text = MIT.format(", ".join(package["authors"]))
        elif text is None:
            sys.exit(f"{package['name']} {package['version']}: its folder has no text of {name}, expected one")
        used.add(text)
        yield name, text
    for path, text in read.items():
        # Of the crate as a whole there are several licenses to choose from; what lies deeper in it is of others.
        if text not in used and (path.name.upper().startswith("NOTICE") or path.parent != folder):
            used.add(text)
            yield "Notices", text


def is_legal(path):
    """Whether a file of a crate has, by its name, a license or a notice in it."""
    name = path.name.upper()
    beside_fonts = path.suffix == ".txt" and path.parent.name == "fonts"
    code = path.suffix in (".rs", ".py", ".toml", ".json", ".yml")
    return not code and (beside_fonts or name.startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE")))


def notice():
    lines, users = [], defaultdict(list)
    for package in crates(metadata()):
        title, expression = f"{package['name']} {package['version']}", package["license"]
        if expression is None or (names := chosen(expression)) is None:
            sys.exit(f"{title}: its license is {expression}, expected one of {', '.join(ACCEPTED)}")
        lines.append(f"| {title} | {expression} | {' and '.join(names)} | {package['repository'] or ''} |\n")
        for name, text in texts(package, names):
            users[name, text].append(title)
    document = INTRODUCTION + "| crate | licenses | used under | where it is from |\n|---|---|---|---|\n" + "".join(lines)
    order = [*ACCEPTED, "Notices"]
    for (name, text), titles in sorted(users.items(), key=lambda item: (order.index(item[0][0]), item[1])):
        document += f"\n## {name}: {', '.join(titles)}\n\n```text\n{text}\n```\n"
    return document


def main():
    wanted = notice()
    if sys.argv[1:] == ["--check"]:
        if not NOTICE.exists() or NOTICE.read_text() != wanted:
            sys.exit(f"{NOTICE.relative_to(ROOT)} does not fit Cargo.lock: cli/third_party.py writes it anew")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        NOTICE.write_text(wanted)


if __name__ == "__main__":
    main()
