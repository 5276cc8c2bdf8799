"""The scripts for many machines, where machines are lost:

    python many_machines.py CONDPROG FOLDER

Slurm is this program as `sbatch`, which runs one task after another. Ray is a cluster of two nodes on this machine.
Tasks are killed in the middle of their shares, with the program that they run and without it; what comes out must be
byte for byte what one run gives that nobody disturbed.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHARES = 4
OPTIONS = ["--effort", "2", "--block-rows", "64", "--rate-order", "2=3,3=2,4=1.5", "--shard-size", "40kB"]
SCRIPTS = Path(__file__).resolve().parents[3] / "docs"


def running(share):
    """The process that codes a share, and its parent."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue  # it has just ended
        if os.environ["CONDPROG"].encode() == arguments[0] and f"{share}/{SHARES}".encode() in arguments:
            return int(process.name), parent
    return None


def wait_for(what, found, seconds=120):
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, f"{what}: not within {seconds} seconds"
        time.sleep(0.002)
    return value


def kill_in_the_middle(parts, share, with_program):
    """Kills what started the program for a share once some blocks are done, and the program or not."""
    journal = parts / f"{share}-of-{SHARES}.safetensors.condprog-journal"

    def blocks():
        return journal.read_text().count("\n") - 1 if journal.exists() else 0

    program, parent = wait_for(f"the program of share {share}", lambda: running(share))
    done = wait_for(f"blocks of share {share}", lambda: blocks() >= 2 and blocks())
    os.kill(parent, signal.SIGKILL)
    if with_program:
        os.kill(program, signal.SIGKILL)
    how = "with" if with_program else "without"
    print(f"share {share}: killed after {done} blocks, {how} its program", file=sys.stderr, flush=True)


def sbatch(arguments):
    options = [argument for argument in arguments if argument.startswith("--") and argument not in OPTIONS]
    command = arguments[len(options) :]
    array = next((option for option in options if option.startswith("--array=")), None)
    if array is None:
        assert "--dependency=afterok:7" in options, options
        subprocess.run(command, check=True, stdout=sys.stderr, env=os.environ | {"SLURM_JOB_ID": "8"})
        return
    assert array == f"--array=0-{SHARES - 1}", array
    parts = Path(f"{command[3]}.parts")
    for task in range(SHARES):
        environment = os.environ | {"SLURM_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": str(task)}
        if task == 1:
            run = subprocess.Popen(command, stdout=sys.stderr, env=environment)
            kill_in_the_middle(parts, task, with_program=True)
            run.wait()
        subprocess.run(command, check=True, stdout=sys.stderr, env=environment)
    print(7)


def check_slurm(folder):
    bin = folder / "bin"
    bin.mkdir()
    (bin / "sbatch").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" sbatch "$@"\n')
    (bin / "sbatch").chmod(0o755)
    environment = os.environ | {"PATH": f"{bin}:{os.environ['PATH']}"}
    command = [
        SCRIPTS / "compress_on_slurm.sh",
        str(SHARES),
        folder / "deepseek",
        folder / "slurm" / "table.safetensors",
    ]
    (folder / "slurm").mkdir()
    subprocess.run([*command, *OPTIONS], check=True, env=environment)


def check_ray(folder):
    # Before Ray is imported, and short: sockets lie in it.
    temporary = os.environ["RAY_TMPDIR"] = tempfile.mkdtemp()
    Path(temporary, "ray").mkdir()
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        cluster.add_node(**node)
        output = folder / "on-ray" / "table.safetensors"
        output.parent.mkdir()
        command = [sys.executable, SCRIPTS / "compress_on_ray.py", "--shares", str(SHARES)]
        command += ["--condprog", os.environ["CONDPROG"], folder / "deepseek", output, *OPTIONS]
        run = subprocess.Popen(command, env=os.environ | {"RAY_ADDRESS": cluster.address})
        try:
            parts = output.with_name(f"{output.name}.parts")
            kill_in_the_middle(parts, 1, with_program=True)
            kill_in_the_middle(parts, 2, with_program=False)
            assert run.wait(300) == 0, "the script failed"
        finally:
            run.kill()
    finally:
        cluster.shutdown()
        shutil.rmtree(temporary)


def same_files(folder, other):
    """All files, the index too."""
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in other.iterdir() if not path.name.endswith(".log")), other
    for name in names:
        assert (folder / name).read_bytes() == (other / name).read_bytes(), f"{other / name} differs"
    return len(names)


def main(program, folder):
    import numpy as np

    import families
    import tensors

    folder = Path(folder).resolve()
    os.environ |= {"CONDPROG": str(Path(program).resolve()), "RAY_USAGE_STATS_ENABLED": "0"}
    checkpoint = families.deepseek(np.random.default_rng(6))
    tensors.write_checkpoint(folder / "deepseek", checkpoint.files)
    (folder / "alone").mkdir()
    alone = [program, "compress", folder / "deepseek", "-o", folder / "alone" / "table.safetensors", *OPTIONS]
    subprocess.run(alone, check=True)
    check_slurm(folder)
    files = same_files(folder / "alone", folder / "slurm")
    check_ray(folder)
    same_files(folder / "alone", folder / "on-ray")
    print(f"{files} files are byte for byte those of one run, from Slurm and from Ray")


if __name__ == "__main__":
    if sys.argv[1:2] == ["sbatch"]:
        sbatch(sys.argv[2:])
    elif len(sys.argv) == 3:
        main(*sys.argv[1:])
    else:
        sys.exit(__doc__)
