"""The command under faults of the system and of its user:

    python crash.py CONDPROG SHIM FOLDER [--scenario NAME]... [--quick] [--verbose]

Every scenario (`scenarios.py`) is run with every fault at every system call that changes a file (`faults.py`), with
every trap under every name that it writes (`traps.py`), and twice at once with one run waiting before each call
(`races.py`). The names of working files are nowhere here: they are those of which the shim says that they are written.

Which calls there are is checked against the kernel's table in `shim.c`. It was compared with what strace sees, of every
scenario:

    strace -f -e trace=%file,%desc -o FILE condprog ...

All of a run's calls that are not in the shim's log open for reading, read, look (stat, readlink, getcwd, lseek, poll),
close, or map memory that no file shares.
"""

import argparse
import os
import shutil
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faults
import races
import traps
from harness import Condprog, Reference
from scenarios import SCENARIOS

PROCESSES = 2
# All together, against a hang: two idle cores take a few minutes, mostly of the system's time.
SECONDS = 1500
# Of one kind, unless --verbose is given.
MOST_MESSAGES = 5
# With --quick.
EVERY = 7


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("condprog", type=Path)
    parser.add_argument("shim", type=Path)
    parser.add_argument("folder", type=Path)
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--scenario", action="append", choices=names, help="only this one; may be repeated")
    parser.add_argument("--quick", action="store_true", help=f"one case of {EVERY}")
    parser.add_argument("--verbose", action="store_true", help="every message")
    return parser.parse_args()


def run_case(reference, number, check, end):
    """The failures of one case, in a folder of its own."""
    if time.monotonic() > end:
        return [f"not run: all together took more than {SECONDS} s"]
    folder = reference.fresh(f"case-{number}")
    try:
        return check(folder)
    except AssertionError as error:
        return [f"the test itself: {error}"]
    finally:
        for path in [folder, *reference.work.glob(f"{folder.name}-*")]:
            shutil.rmtree(path)
        for path in reference.work.glob(f"{folder.name}.*"):
            path.unlink()


def undisturbed(reference):
    """Sources are what they were after a run to which nothing happens."""
    yield "undisturbed", "nothing", lambda _: [f"a: {what}" for what in reference.harm]


def run_scenario(reference, pool, arguments, end):
    """Runs all cases, says what failed, and returns how many there were and failed."""
    name = reference.scenario.name
    cases = [case for kind in (undisturbed, faults.cases, traps.cases, races.cases) for case in kind(reference)]
    cases = cases[:: EVERY if arguments.quick else 1]
    jobs = [pool.submit(run_case, reference, number, check, end) for number, (_, _, check) in enumerate(cases)]
    done, failed, letters = Counter(), Counter(), defaultdict(Counter)
    for (mode, what, _), job in zip(cases, jobs):
        done[mode] += 1
        if not (failures := job.result()):
            continue
        failed[mode] += 1
        letters[mode].update({failure[0] for failure in failures if failure[1:2] == ":"})
        if failed[mode] <= MOST_MESSAGES or arguments.verbose:
            shown = failures if arguments.verbose else failures[:1]
            more = f" (and {len(failures) - 1} more)" if len(failures) > len(shown) else ""
            print(f"  FAILED {name}, {mode}, {what}: {'; '.join(shown)}{more}", flush=True)
    for mode in done:
        why = "".join(f", {count} by {letter}" for letter, count in sorted(letters[mode].items()))
        print(f"{name:24} {mode:20} {done[mode]:4} cases, {failed[mode]} failed{why}", flush=True)
    print(f"{name:24} left in {len(reference.seen)} different states by faults", flush=True)
    return done.total() - failed.total(), failed.total()


def main():
    arguments = parse()
    # What messages and sizes depend on.
    os.environ |= {"LC_ALL": "C", "NO_COLOR": "1"}
    condprog, work, start = Condprog(arguments.condprog, arguments.shim), arguments.folder.resolve(), time.monotonic()
    passed = failed = 0
    with ThreadPoolExecutor(PROCESSES) as pool:
        for scenario in SCENARIOS:
            if arguments.scenario and scenario.name not in arguments.scenario:
                continue
            try:
                reference = Reference(condprog, scenario, work)
            except AssertionError as error:
                print(f"  FAILED {error}", flush=True)
                failed += 1
                continue
            print(f"{scenario.name}: {len(reference.calls)} calls [{time.monotonic() - start:.0f} s]", flush=True)
            counts = run_scenario(reference, pool, arguments, start + SECONDS)
            passed, failed = passed + counts[0], failed + counts[1]
            shutil.rmtree(reference.work)
    print(f"{time.monotonic() - start:.0f} s")
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0 or passed == 0)


if __name__ == "__main__":
    main()
