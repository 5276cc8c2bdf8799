#!/usr/bin/env python3
"""Registers, memory and instructions of the CUDA kernels, read from ptxas' messages and nvdisasm's listing.

usage: static_report.py MESSAGES LISTING

Prints the report that is checked in as prebuilt/static-report.txt. Ends with 1 and says why when a kernel breaks a rule: local
memory, spills, a stack, or no 16-byte stores.
"""

import collections
import re
import sys

# Of the budget in decode.cu.
ROWS, PROCESSORS, SCHEDULERS, GHZ = 196_608, 132, 4, 1.755
ROWS_PER_CHUNK = 8
LANES = 32

CLASSES = [  # by the start of the instruction's name; the first that fits
    ("shared", ("LDS", "STS", "SHFL")),
    ("global", ("LDG", "STG", "ATOM", "RED")),
    ("multiply", ("IMAD", "FFMA", "FMUL", "FADD", "HFMA2", "HMUL2")),
    ("uniform", ("U", "S2UR", "R2UR")),
    ("control", ("BRA", "BSSY", "BSYNC", "EXIT", "BAR", "NOP", "WARPSYNC", "CALL", "RET", "YIELD", "ENDCOLLECTIVE")),
    ("constant", ("LDC",)),
    ("integer", ("",)),
]


def kind(name):
    return next(label for label, starts in CLASSES if name.startswith(starts))


def messages(text):
    """Registers, shared bytes, stack, spills of each kernel, from `ptxas -v`."""
    result = {}
    name = None
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            name = found[1]
            result[name] = {}
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            result[name].update(stack=int(found[1]), spills=int(found[2]) + int(found[3]))
        elif found := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            result[name].update(registers=int(found[1]), shared=int(shared[1]) if shared else 0)
    return result


def listing(text):
    """Instructions and labels of each kernel, from `nvdisasm -c`."""
    result = {}
    for name, body in re.findall(r"^\.text\.(\w+):\n(.*?)(?=^\t\.section|^//-|\Z)", text, re.M | re.S):
        lines = (re.sub(r"/\*.*?\*/", "", line).strip().rstrip(";").strip() for line in body.splitlines())
        result[name] = [line for line in lines if line.endswith(":") or re.match(r"@?!?U?P?\w", line)]
    return result


def opcode(line):
    return re.sub(r"^@!?U?P\w+ ", "", line).split()[0]


def instructions(lines):
    return [opcode(line) for line in lines if not line.startswith(".")]


def loops(lines):
    """Ranges from a label to a jump back to it, the shortest first."""
    at = {line[:-1]: index for index, line in enumerate(lines) if line.endswith(":")}
    jumps = ((index, re.search(r"\bBRA `\((\.\w+)\)", line)) for index, line in enumerate(lines))
    found = [(at[jump[1]], index + 1) for index, jump in jumps if jump and at.get(jump[1], index) < index]
    return sorted((loop for loop in found if len(instructions(lines[loop[0]:loop[1]])) > 1), key=lambda l: l[1] - l[0])


def count(names):
    counted = collections.Counter(map(kind, names))
    return " ".join(f"{label} {counted[label]}" for label, _ in CLASSES if counted[label])


def values_per_step(name):
    return 4 if name.endswith("f32") else 8


def main():
    with open(sys.argv[1]) as file:
        used = messages(file.read())
    with open(sys.argv[2]) as file:
        code = listing(file.read())
    broken = []
    print("# Made by kernels/check-cuda.sh --update from the machine code for sm_90. Compared by kernels/check-cuda.sh.")
    for name in sorted(code, key=lambda name: (not name.startswith("decode"), name)):
        lines, facts = code[name], used[name]
        names = instructions(lines)
        local = sum(one.startswith(("LDL", "STL")) for one in names)
        wide = sum(one.startswith("STG.E.128") for one in names)
        print(f"\n{name}")
        print(f"  registers {facts['registers']}  shared {facts['shared']}  stack {facts['stack']}"
              f"  spills {facts['spills']}  local {local}  instructions {len(names)}")
        loads = collections.Counter(one for one in names if one.startswith(("LDG", "STG", "LDS", "STS")))
        print("  " + "  ".join(f"{one} {number}" for one, number in sorted(loads.items())))
        if local or facts["stack"] or facts["spills"]:
            broken.append(f"{name}: local memory, a stack or spills")
        if not wide and name != "fill":
            broken.append(f"{name}: no 16-byte stores")
        if not name.startswith("decode"):
            continue
        around = [loop for loop in loops(lines) if any(
            not line.startswith(".") and opcode(line).startswith("STG.E.128") for line in lines[loop[0]:loop[1]])]
        step = instructions(lines[around[0][0]:around[0][1]])
        print(f"  step of {values_per_step(name)} values: {len(step)} instructions: {count(step)}")
        if "any" in name:
            continue
        outer = next(loop for loop in around if loop[0] < around[0][0])
        nested = [loop for loop in loops(lines) if outer[0] < loop[0] and loop[1] < outer[1]]
        rest = [line for index, line in enumerate(lines[outer[0]:outer[1]], outer[0])
                if not any(loop[0] <= index < loop[1] for loop in nested)]
        rest = instructions(rest)
        print(f"  chunk of {ROWS_PER_CHUNK} rows, without its steps: {len(rest)} instructions: {count(rest)}")
        dim = int(re.search(r"_d(\d+)_", name)[1])
        steps = dim / values_per_step(name) / LANES
        per_row = len(step) * steps + len(rest) / ROWS_PER_CHUNK
        cycles = ROWS / PROCESSORS / SCHEDULERS * per_row
        print(f"  per row: {per_row:.1f} instructions of a warp; {ROWS} rows: {cycles / GHZ / 1000:.1f} us of issue slots"
              f" at {GHZ} GHz")
    for problem in broken:
        print(f"static_report: {problem}", file=sys.stderr)
    return 1 if broken else 0


sys.exit(main())
