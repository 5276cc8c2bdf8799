"""Faults that checkpoints, parts and requests have had elsewhere: each must end in one message that says what is wrong,
before a row is coded, and leave nothing behind."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import families
import tensors
from families import BF16, E4M3, E8M0, LONGCAT, QWEN

EMBED = "layers.1.engram.embed"
SHARD = f"{QWEN}.shard_"


@dataclass
class Fault:
    """A sound checkpoint, what is done to its tensors or to its folder, and what the message must have in it."""

    name: str
    base: str
    says: list
    tensors: Callable = lambda files: None
    folder: Callable = lambda folder: None
    arguments: list = field(default_factory=list)
    # Rows before it are coded, and kept for when the user has decided.
    keeps_rows: bool = False


def put(name, array, file=0):
    def change(files):
        drop(name)(files)
        files[file][name] = array

    return change


def drop(*names):
    def change(files):
        for file in files:
            for name in names:
                file.pop(name, None)

    return change


def edit(name, change):
    """A copy of a tensor, changed."""

    def all_files(files):
        for file in files:
            if name in file:
                file[name] = change(file[name].copy())

    return all_files


def set_byte(row, column, byte):
    def change(array):
        array.view(np.uint8)[row, column] = byte
        return array

    return change


def set_value(row, column, value):
    def change(array):
        array[row, column] = value
        return array

    return change


def both(*changes):
    def change(files):
        for change in changes:
            change(files)

    return change


def file(folder, number):
    (path,) = folder.glob(f"model-{number:05}-of-*")
    return path


def edit_index(change):
    def edit(folder):
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        change(index["weight_map"])
        path.write_text(json.dumps(index))

    return edit


def cut(folder):
    path = file(folder, 2)
    path.write_bytes(path.read_bytes()[:-1])


def copy_of_a_file(folder):
    """Another file, which the index has one tensor in, holds the weights again."""
    again, _ = tensors.read_file(file(folder, 1))
    tensors.write_file(folder / "again.safetensors", {**again, "more": np.ones((2, 2), BF16)})
    edit_index(lambda where: where.update(more="again.safetensors"))(folder)


FAULTS = [
    Fault(
        "scales are missing",
        "deepseek",
        ['"layers.1.engram.embed.weight" of type F8_E4M3 has no scales', '"layers.1.engram.embed.scale"', "[963, 8]"],
        tensors=drop(f"{EMBED}.scale"),
    ),
    Fault(
        "scales are a placeholder of one number",
        "deepseek",
        ['"layers.1.engram.embed.scale"', "shape [1]", "placeholder"],
        tensors=put(f"{EMBED}.scale", np.ones(1, np.float32)),
    ),
    Fault(
        "scales are too few for the columns",
        "deepseek",
        ["have type F8_E8M0 and shape [963, 4]", "expected F8_E8M0 and [963, 8]"],
        tensors=edit(f"{EMBED}.scale", lambda scale: scale[:, :4]),
    ),
    Fault(
        "scales are too few for the rows",
        "deepseek",
        ["have type F8_E8M0 and shape [962, 8]", "expected F8_E8M0 and [963, 8]"],
        tensors=edit(f"{EMBED}.scale", lambda scale: scale[1:]),
    ),
    Fault(
        "scales are of another type",
        "deepseek",
        ["have type F32 and shape [963, 8]", "expected F8_E8M0"],
        tensors=put(f"{EMBED}.scale", np.ones((963, 8), np.float32)),
    ),
    Fault(
        "scales are there under two names",
        "deepseek",
        ['"layers.1.engram.embed.scale"', '"layers.1.engram.embed.weight_scale"', "expected one of them"],
        tensors=put(f"{EMBED}.weight_scale", np.full((963, 8), 127, np.uint8).view(E8M0)),
    ),
    Fault(
        "the file of the weights is missing",
        "deepseek",
        ['"layers.1.engram.embed.weight" is listed in', "model-00001-of-00003", "a shard is missing"],
        folder=lambda folder: file(folder, 1).unlink(),
    ),
    Fault(
        "the file of the scales is missing",
        "deepseek",
        ['"layers.14.engram.embed.scale" is listed in', "model-00003-of-00003", "a shard is missing"],
        folder=lambda folder: file(folder, 3).unlink(),
    ),
    Fault(
        "a tensor is in two files",
        "deepseek",
        ['"layers.1.engram.embed.weight" is in', "model-00001-of-00003", "again", "expected one of them"],
        folder=copy_of_a_file,
    ),
    Fault(
        "a file does not have what the index has in it",
        "deepseek",
        ['index has tensor "layers.9.engram.embed.weight"', "which does not have it"],
        folder=edit_index(lambda where: where.update({"layers.9.engram.embed.weight": where["head.weight"]})),
    ),
    Fault(
        "the index has a file elsewhere",
        "deepseek",
        ['in file "../head.safetensors"', "expected the name of a file in the index's folder"],
        folder=edit_index(lambda where: where.update({"head.weight": "../head.safetensors"})),
    ),
    Fault("a file is cut short", "deepseek", ["model-00002-of-00003", "expected"], folder=cut),
    Fault(
        "the index is forgotten",
        "deepseek",
        ["3 safetensors files and no index", "model.safetensors.index.json"],
        folder=lambda folder: (folder / "model.safetensors.index.json").unlink(),
    ),
    Fault(
        "an element is NaN",
        "deepseek",
        ['"layers.1.engram.embed.weight", row 700: value in column 255 is NaN', "--non-finite zero"],
        tensors=edit(f"{EMBED}.weight", set_byte(700, 255, 0x7F)),
        keeps_rows=True,
    ),
    Fault(
        "an element is NaN with a sign",
        "deepseek",
        ['"layers.1.engram.embed.weight", row 0: value in column 3 is NaN', "--non-finite zero"],
        tensors=edit(f"{EMBED}.weight", set_byte(0, 3, 0xFF)),
    ),
    Fault(
        "a scale is NaN",
        "deepseek",
        ['"layers.14.engram.embed.weight", row 1057: value in column 224 is NaN', "--non-finite zero"],
        tensors=edit("layers.14.engram.embed.scale", set_byte(1057, 7, 255)),
        keeps_rows=True,
    ),
    Fault(
        "rows are no heads",
        "deepseek",
        ['table "layers.1.engram.embed.weight" has 962 rows', "24 consecutive primes"],
        tensors=both(edit(f"{EMBED}.weight", lambda rows: rows[1:]), edit(f"{EMBED}.scale", lambda scales: scales[1:])),
        arguments=["--rate-order", "2=3"],
    ),
    Fault(
        "an order that the model does not have",
        "deepseek",
        ["have no rows of 5-grams", "[2, 3, 4]"],
        arguments=["--rate-order", "5=3"],
    ),
    Fault(
        "the model is another one", "deepseek", ["no tensor is a table of qwen3.8"], arguments=["--model", "qwen3.8"]
    ),
    Fault(
        "two models in one folder",
        "deepseek",
        ["is of deepseek-v4.1 but", "is of longcat-flash"],
        tensors=put(f"{LONGCAT}.0.weight", np.ones((3, 256), BF16)),
    ),
    Fault(
        "ranges of rates overlap",
        "deepseek",
        ["rows 50..60 of table", "do not overlap"],
        arguments=["--tensor", f"{EMBED}.weight", "--rate-rows", "0..51=3", "--rate-rows", "50..60=3"],
    ),
    Fault(
        "a range of rates is beyond the table",
        "deepseek",
        ["rows 50..964 of table", "within its 963 rows"],
        arguments=["--tensor", f"{EMBED}.weight", "--rate-rows", "50..964=3"],
    ),
    Fault(
        "a part is beyond the table",
        "deepseek",
        ["rows 900..964 of table", "within its 963 rows"],
        arguments=["--tensor", f"{EMBED}.weight", "--rows", "900..964"],
    ),
    Fault(
        "a part of two tables",
        "deepseek",
        ["a range of rows is a part of one table", "layers.14"],
        arguments=["--rows", "0..64"],
    ),
    Fault("more parts than blocks", "deepseek", ["number of shares", "at most 65"], arguments=["--part", "0/66"]),
    Fault(
        "a shard is missing",
        "qwen-bf16",
        ["has 127 parts, expected 128", f'"{SHARD}77.weight" is missing'],
        tensors=drop(f"{SHARD}77.weight"),
    ),
    Fault(
        "the last shard is missing",
        "qwen-bf16",
        ["has 127 parts, expected 128", f'"{SHARD}127.weight" is missing'],
        tensors=drop(f"{SHARD}127.weight"),
    ),
    Fault(
        "a shard is there twice",
        "qwen-bf16",
        [f'"{SHARD}07.weight"', f'"{SHARD}7.weight"', "expected one of them"],
        tensors=put(f"{SHARD}07.weight", np.ones((5, 160), BF16)),
    ),
    Fault(
        "a shard beyond the last",
        "qwen-bf16",
        [f'"{SHARD}128.weight" is beyond the last part', "0 to 127"],
        tensors=put(f"{SHARD}128.weight", np.ones((5, 160), BF16)),
    ),
    Fault(
        "a shard is narrower",
        "qwen-bf16",
        [f'"{SHARD}9.weight" has values per row 128, expected 160'],
        tensors=edit(f"{SHARD}9.weight", lambda rows: rows[:, :128]),
    ),
    Fault(
        "a shard is of another type",
        "qwen-bf16",
        [f'"{SHARD}9.weight" has type F32, expected BF16'],
        tensors=edit(f"{SHARD}9.weight", lambda rows: rows.astype(np.float32)),
    ),
    Fault(
        "a shard is FP8 where no scale is",
        "qwen-bf16",
        [f'"{SHARD}9.weight" of type F8_E4M3 has no scales'],
        tensors=edit(f"{SHARD}9.weight", lambda rows: rows.astype(E4M3)),
    ),
    Fault(
        "the one scale is missing",
        "qwen-fp8",
        [f'"{SHARD}0.weight" of type F8_E4M3 has no scales', f'"{QWEN}.weight_scale"'],
        tensors=drop(f"{QWEN}.weight_scale"),
    ),
    Fault(
        "the one scale is zero",
        "qwen-fp8",
        [f'scale "{QWEN}.weight_scale"', "is 0, expected a positive number"],
        tensors=put(f"{QWEN}.weight_scale", np.zeros(1, BF16)),
    ),
    Fault(
        "the one scale is NaN",
        "qwen-fp8",
        [f'scale "{QWEN}.weight_scale"', "is NaN, expected a positive number"],
        tensors=put(f"{QWEN}.weight_scale", np.full(1, np.nan, BF16)),
    ),
    Fault(
        "the one scale is two",
        "qwen-fp8",
        [f'"{SHARD}0.weight" of type F8_E4M3 has no scales', "[1]"],
        tensors=put(f"{QWEN}.weight_scale", np.ones(2, BF16)),
    ),
    Fault(
        "one shard of 128 has no scales",
        "qwen-int8-rows",
        [f'"{SHARD}64.weight" of type I8 has no scales'],
        tensors=drop(f"{SHARD}64.weight_scale"),
    ),
    Fault(
        "one shard of 128 has other scales",
        "qwen-fp8-rows",
        [f'"{SHARD}64.weight" has scales BF16 for the whole tensor, expected BF16 for rows'],
        tensors=edit(f"{SHARD}64.weight_scale", lambda scale: scale[:1, 0]),
    ),
    Fault(
        "a table of twelve is missing",
        "longcat",
        ["has 11 parts, expected 12", f'"{LONGCAT}.5.weight" is missing'],
        tensors=drop(f"{LONGCAT}.5.weight"),
    ),
    Fault(
        "an infinity",
        "longcat",
        [f'"{LONGCAT}.weight", row 66: value in column 7 is inf', "--non-finite zero"],
        tensors=edit(f"{LONGCAT}.1.weight", set_value(1, 7, np.inf)),
        keeps_rows=True,
    ),
    Fault(
        "the first shard is missing and nothing says how many there are",
        "qwen-bf16",
        ["has 127 parts, expected 128: tensor", f'"{SHARD}0.weight" is missing'],
        tensors=drop(f"{SHARD}0.weight"),
        folder=lambda folder: (folder / "config.json").unlink(),
    ),
    Fault(
        "the config has another number of shards",
        "qwen-bf16",
        ["has 128 parts, expected 512 as split_ngram_parts in config.json has it", f'"{SHARD}128.weight" is missing'],
        folder=lambda folder: (folder / "config.json").write_text('{"split_ngram_parts": 512}'),
    ),
    Fault(
        "a zero point is not zero",
        "qwen-int8-rows",
        [f'"{SHARD}9.weight" has zero points "{SHARD}9.weight_zero_point", of which element 2 is 60'],
        tensors=put(f"{SHARD}9.weight_zero_point", np.array([[0], [0], [60], [0], [0]], np.int8)),
    ),
    Fault(
        "a shard is packed",
        "qwen-bf16",
        [f'"{SHARD}9.weight" of type U32 is packed', f'"{SHARD}9.scales" and "{SHARD}9.biases"'],
        tensors=both(
            put(f"{SHARD}9.weight", np.ones((5, 20), np.uint32)),
            put(f"{SHARD}9.scales", np.ones((5, 5), BF16)),
            put(f"{SHARD}9.biases", np.ones((5, 5), BF16)),
        ),
    ),
    Fault(
        "the scales of one piece are named for all",
        "unknown",
        ['scales "lookup.rows" have shape [30, 1]', "expected those of all 385 rows", "a pattern"],
        tensors=put("lookup.rows", np.ones((30, 1), np.float32)),
        arguments=["--join-tensors", "lookup=lookup.piece*.data", "--scale-tensor", "lookup.rows"],
    ),
    Fault(
        "the first piece is missing",
        "unknown",
        ['starts at tensor "lookup.piece1.data", expected number 0', '"lookup.piece{1..10}.data"'],
        tensors=drop("lookup.piece0.data"),
        arguments=["--join-tensors", "lookup=lookup.piece*.data", "--scale-tensor", "lookup.unit"],
    ),
    Fault(
        "a piece is there twice",
        "unknown",
        ['"lookup.piece3.data" and "lookup.piece03.data" with the same number'],
        tensors=put("lookup.piece03.data", np.ones((33, 64), E4M3)),
        arguments=["--join-tensors", "lookup=lookup.piece*.data", "--scale-tensor", "lookup.unit"],
    ),
    Fault(
        "a piece is missing between others",
        "unknown",
        ['from tensor "lookup.piece4.data" to "lookup.piece6.data"'],
        tensors=drop("lookup.piece5.data"),
        arguments=["--join-tensors", "lookup=lookup.piece*.data", "--scale-tensor", "lookup.unit"],
    ),
    Fault(
        "no piece is there",
        "unknown",
        ['"lookup.part*.data" matches no tensor'],
        arguments=["--join-tensors", "lookup=lookup.part*.data", "--scale-tensor", "lookup.unit"],
    ),
    Fault(
        "the named scale is not there",
        "unknown",
        ['"lookup.scale" is not in the checkpoint'],
        arguments=["--join-tensors", "lookup=lookup.piece*.data", "--scale-tensor", "lookup.scale"],
    ),
]


def refused(condprog, what, says, *arguments, keeps_rows=False):
    """One message and hints; nothing on stdout, no output, and nothing unfinished unless rows are kept."""
    before = set(condprog.folder.iterdir())
    run = condprog.run(*arguments)
    errors = [line for line in run.stderr.splitlines() if not line.startswith("hint: ")]
    assert run.returncode == 1 and run.stdout == "", f"{what}: {run}"
    assert len(errors) == 1 and errors[0].startswith("error: "), f"{what}: {run.stderr}"
    missing = [text for text in says if text not in run.stderr]
    assert not missing, f"{what}: {missing} not in {run.stderr}"
    left = set(condprog.folder.iterdir()) - before
    kept = {path for path in left if path.name.endswith((".condprog-partial", ".condprog-journal"))}
    assert left == kept and len(kept) == 2 * keeps_rows, f"{what}: {left} is left behind"
    for path in kept:
        path.unlink()


def check_checkpoints(condprog):
    bases = {checkpoint.name: checkpoint for checkpoint in families.all_families()}
    folder = condprog.folder / "faulty"
    for fault in FAULTS:
        files = [dict(tensors) for tensors in bases[fault.base].files]
        fault.tensors(files)
        tensors.write_checkpoint(folder, files)
        if fault.base.startswith("qwen"):
            (folder / "config.json").write_text(json.dumps({"split_ngram_parts": 128}))
        fault.folder(folder)
        try:
            compress = ["compress", "faulty", "-o", "faulty.safetensors", "--effort", 0, "--block-rows", 32]
            refused(condprog, fault.name, fault.says, *compress, *fault.arguments, keeps_rows=fault.keeps_rows)
        finally:
            shutil.rmtree(folder)
    return len(FAULTS)


def damage(path, row):
    """Turns a bit of a record."""
    tensors_of_it, _ = tensors.read_file(path, "r+")
    (records,) = (array for array in tensors_of_it.values() if array.dtype == np.uint8)
    records[row, 0] ^= 1


def check_parts(condprog):
    """Parts of DeepSeek's second table, of 1058 rows."""
    table = "layers.14.engram.embed.weight"
    usual = {"--tensor": table, "--effort": 0, "--block-rows": 64}
    parts = {
        "first": {"--rows": "0..333"},
        "second": {"--rows": "333..700"},
        "third": {"--rows": "700..1058"},
        "late": {"--rows": "650..1058"},
        "effort": {"--rows": "700..1058", "--effort": 1},
        "rate": {"--rows": "700..1058", "--rate": 3},
        "rates": {"--rows": "700..1058", "--rate-rows": "0..10=3"},
        "rule": {"--rows": "700..1058", "--scale": "norm"},
        "blocks": {"--rows": "700..1058", "--block-rows": 32},
        "files": {"--rows": "700..1058", "--shard-size": "40kB"},
        "other": {"--rows": "700..963", "--tensor": f"{EMBED}.weight"},
        "whole": {},
    }

    def file(name):
        return condprog.folder / f"{name}.safetensors"

    for name, options in parts.items():
        options = usual | options
        condprog("compress", "deepseek", "-o", file(name), *(text for option in options.items() for text in option))
    shutil.copy(file("second"), file("damaged"))
    damage(file("damaged"), 200)
    cases = [
        ("a part in the middle is missing", "first third", [f'rows 333..700 of table "{table}" are in no part']),
        ("the first part is missing", "second third", [f'rows 0..333 of table "{table}" are in no part']),
        ("the last part is missing", "second first", [f'rows 700..1058 of table "{table}" are in no part']),
        ("a part is there twice", "first second first third", ["rows 0..333", "first.safetensors", "expected once"]),
        ("parts overlap", "first second late", ["rows 650..700", "late.safetensors", "second.safetensors"]),
        ("parts of another effort", "first second effort", ["the effort of table", "is 1, expected 0 as in the first"]),
        ("parts of another rate", "first second rate", ["the rates of table", "as in the first"]),
        ("parts of other rates elsewhere", "first second rates", ["the rates of table", "as in the first"]),
        ("parts of another rule", "first second rule", ["the scale rule of table", "is norm, expected projection"]),
        ("parts of other blocks", "first second blocks", ["the rows per block of table", "is 32, expected 64"]),
        ("parts for other files", "first second files", ["the size of files is 40000 bytes, expected not limited"]),
        ("parts of another table", "first second other", ["the list of tables", f"{EMBED}.weight"]),
        ("a whole table among parts", "first second whole", ["whole.safetensors is not a part of a table"]),
        ("a damaged part", "first damaged third", ["damaged.safetensors", "checksum is"]),
    ]
    for what, names, says in cases:
        refused(condprog, what, says, "join", *map(file, names.split()), "-o", file("joined"))
    condprog("join", *map(file, ("third", "first", "second")), "-o", file("joined"))
    assert file("joined").read_bytes() == file("whole").read_bytes(), "joined parts are not the whole"
    for name in ("joined", "damaged", *parts):
        file(name).unlink()
    return len(cases)


def check_outputs(condprog):
    """Faults of an output of several files, and of requests to it."""
    index = "deepseek.out.safetensors.index.json"
    table = "layers.14.engram.embed.weight"
    faulty = condprog.folder / "faulty"
    listed = json.loads((condprog.folder / index).read_text())["weight_map"]
    files = sorted(set(listed.values()))
    third = next(name for name, file in listed.items() if file == files[2])

    def change_index(change):
        listed = json.loads((faulty / index).read_text())
        change(listed["weight_map"])
        (faulty / index).write_text(json.dumps(listed))

    def forget_a_file(where):
        for name in [name for name, file in where.items() if file == files[2]]:
            del where[name]

    cases = [
        ("a file is missing", lambda: (faulty / files[2]).unlink(), [f'names file "{files[2]}", which is not there']),
        (
            "the index has forgotten a file",
            lambda: change_index(forget_a_file),
            ["layers.1.engram.embed.weight", "a file is missing"],
        ),
        (
            "a file is another",
            lambda: shutil.copy(faulty / files[1], faulty / files[2]),
            [files[2], "does not have it"],
        ),
        (
            "the index has a tensor in another file",
            lambda: change_index(lambda where: where.update({third: files[0]})),
            [f'index has tensor "{third}" in file "{files[0]}", which does not have it'],
        ),
    ]
    for what, change, says in cases:
        faulty.mkdir()
        for name in (index, *files):
            shutil.copy(condprog.folder / name, faulty)
        change()
        for command in (["inspect"], ["verify"], ["rows", "--tensor", table, "--ids", "0"]):
            refused(condprog, what, says, command[0], f"faulty/{index}", *command[1:])
        shutil.rmtree(faulty)

    ids = [(-1, 0), (1058, 2), (2**31, 1), (2**32 + 5, 1), (-(2**63), 1), (2**63 - 1, 1)]
    for id, position in ids:
        asked = ",".join(map(str, [0] * position + [id]))
        says = [f"id {id} at position {position} names no row, expected 0 to 1057", "--missing zero"]
        refused(condprog, f"id {id}", says, "rows", index, "--tensor", table, f"--ids={asked}")
    says = ['table "layers.9.engram.embed.weight" is not in the file']
    refused(condprog, "no such table", says, "rows", index, "--tensor", "layers.9.engram.embed.weight", "--ids", "0")

    # No ids are no fault: an array of no rows.
    np.save(condprog.folder / "ids.npy", np.zeros(0, np.int64))
    for missing in ("zero", "error"):
        ask = ["rows", index, "--tensor", table, "--ids-file", "ids.npy", "--missing", missing]
        condprog(*ask, "-o", "none.npy")
        assert np.load(condprog.folder / "none.npy").shape == (0, 256)
        (condprog.folder / "none.npy").unlink()
    return 3 * len(cases) + len(ids) + 1


def check_zeroed(condprog):
    """Rows that are not finite, where the user chose zeros: they are zero and counted. A scale byte of 0 is the
    smallest power of two there is, not zero: a row of such groups alone is too small to keep, beside others it is as it
    was."""
    checkpoint = families.deepseek(np.random.default_rng(4))
    weight, scale = f"{EMBED}.weight", f"{EMBED}.scale"
    both(
        edit(weight, set_byte(1, 9, 0x7F)),
        edit(weight, set_byte(2, 9, 0xFF)),
        edit(scale, set_byte(3, 0, 255)),
        edit(weight, set_byte(4, 0, 0x38)),
        edit(scale, set_byte(4, slice(None), 0)),
        edit(weight, set_byte(5, 64, 0x38)),
        edit(scale, set_byte(5, 0, 0)),
    )(checkpoint.files)
    tensors.write_checkpoint(condprog.folder / "zeroed", checkpoint.files)
    source = checkpoint.values(weight)
    zero = (~source.any(axis=1)).sum()
    ask = ["compress", "zeroed", "-o", "zeroed.safetensors", "--tensor", weight, "--effort", 0, "--non-finite", "zero"]
    (table,) = condprog(*ask)["tables"]
    counted = [table[f"{why}_rows"] for why in ("non_finite", "underflow", "zero")]
    assert counted == [3, 1, zero], (counted, zero)
    rows = condprog("rows", "zeroed.safetensors", "--ids", "1,2,3,4,5,5")["rows"]
    assert not np.any(rows[:4]) and np.any(rows[4]) and rows[4] == rows[5]


def check(condprog):
    check_zeroed(condprog)
    return check_checkpoints(condprog) + check_parts(condprog) + check_outputs(condprog)
