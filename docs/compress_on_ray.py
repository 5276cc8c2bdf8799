"""Compresses the tables of a checkpoint on the machines of a Ray cluster.

    python compress_on_ray.py [--shares N] [--cpus N] [--condprog PATH] CHECKPOINT OUT.safetensors [OPTION ...]

OPTION is what `condprog compress` takes: `--model`, `--tensor`, `--rate`, `--effort`, `--shard-size` and so on.
Checkpoint and output lie where all machines see them under the same path, and so does the program. RAY_ADDRESS says
which cluster; without it Ray starts one on this machine.

The rows are cut into shares, by default four per machine, and a share is one task. Its part lies beside the output, in
OUT.safetensors.parts, and the task that replaces one on a lost machine resumes it, wherever it runs. The
parts are joined in the end, into the very bytes that one machine would have written, and removed.
"""

import argparse
import json
import shutil
import subprocess
import time
from pathlib import Path

import ray


def compress(condprog, checkpoint, part, share, threads, options):
    """Codes a share, unless it is done."""
    command = [condprog, "compress", checkpoint, "-o", part, "--part", share, "--threads", str(threads), "--json"]
    while not Path(part).exists():
        run = subprocess.run([*command, *options], capture_output=True, text=True)
        if run.returncode == 0:
            break
        try:
            error = json.loads(run.stdout)["error"]
        except (ValueError, KeyError):
            raise RuntimeError(f"share {share}: condprog ended with {run.returncode}: {run.stderr}") from None
        # A run that outlived its worker still has the part: it ends, and is resumed, or it finishes the part.
        if error["code"] not in ("busy", "output-exists"):
            raise RuntimeError(f"share {share}: {error['message']}")
        time.sleep(1)
    return share


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shares", type=int)
    parser.add_argument("--cpus", type=int)
    parser.add_argument("--condprog", default="condprog")
    parser.add_argument("checkpoint")
    parser.add_argument("output")
    parser.add_argument("options", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    ray.init()
    machines = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    cpus = arguments.cpus or int(min(node["Resources"]["CPU"] for node in machines))
    shares = arguments.shares or 4 * len(machines)
    output, checkpoint = (Path(path).resolve() for path in (arguments.output, arguments.checkpoint))
    parts = output.with_name(f"{output.name}.parts")
    parts.mkdir(exist_ok=True)

    # A task whose worker or machine is gone is started again; one that failed by itself would fail again.
    task = ray.remote(num_cpus=cpus, max_retries=10, scheduling_strategy="SPREAD")(compress)
    paths = [str(parts / f"{share}-of-{shares}.safetensors") for share in range(shares)]
    running = [
        task.remote(arguments.condprog, str(checkpoint), path, f"{share}/{shares}", cpus, arguments.options)
        for share, path in enumerate(paths)
    ]
    while running:
        done, running = ray.wait(running)
        print(f"share {ray.get(done[0])} is done, {len(running)} are left", flush=True)
    subprocess.run([arguments.condprog, "join", *paths, "-o", output], check=True)
    shutil.rmtree(parts)


if __name__ == "__main__":
    main()
