#!/usr/bin/env python3
"""Opens the page in headless Chromium, on SwiftShader, and checks its verdict.

    conformance/web/check.py [--screenshot FILE]

Serves the repository on 127.0.0.1 and talks to the browser over its debugging pipe; needs Python's standard library
and a Chromium (Debian: chromium-headless-shell). Then once more with a kernel that is wrong by one bit, which the page
must see. Exit status 0 when the verdicts are as they have to be.
"""

import argparse
import base64
import functools
import http.server
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT = 180
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader", "--hide-scrollbars", "--window-size=800,400", "--remote-debugging-pipe",
]
STATE = """(() => {
  const text = (id) => document.getElementById(id).textContent;
  const verdict = document.getElementById("verdict").dataset.verdict;
  return { verdict, text: text("verdict"), adapter: text("adapter"), cases: text("cases"), speed: text("speed"),
           failures: text("failures") };
})()"""


class Files(http.server.SimpleHTTPRequestHandler):
    """The repository's files; the kernel can be replaced by a mutated one."""

    kernel = None

    def do_GET(self):
        if self.kernel is None or self.path != "/kernels/decode.wgsl":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(self.kernel.encode())

    def end_headers(self):
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *arguments):
        pass


class Browser:
    """Headless Chromium and its debugging pipe: JSON messages that end in a zero byte."""

    def __init__(self, executable, profile):
        to_browser, self.writer = os.pipe()
        self.reader, from_browser = os.pipe()

        def pipes():
            # The browser reads from descriptor 3 and writes to 4. Moved out of the way first: they may be 3 or 4.
            os.dup2(to_browser, 103)
            os.dup2(from_browser, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        # A group of its own: Debian's wrapper does not exec, so the whole group is ended.
        self.process = subprocess.Popen(
            [executable, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=pipes, close_fds=False, start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.pending = b""
        self.number = 0

    def call(self, method, session=None, **parameters):
        """Sends a command and waits for its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def receive(self):
        while b"\0" not in self.pending:
            if not select.select([self.reader], [], [], TIMEOUT)[0]:
                raise RuntimeError(f"the browser said nothing for {TIMEOUT} s")
            data = os.read(self.reader, 1 << 16)
            if not data:
                raise RuntimeError("the browser ended")
            self.pending += data
        message, self.pending = self.pending.split(b"\0", 1)
        return json.loads(message)

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.writer)
        os.close(self.reader)


def visit(browser, url):
    """Opens a page, waits for its verdict, gives what it shows and the page's session."""
    target = browser.call("Target.createTarget", url=url)["targetId"]
    session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    deadline = time.monotonic() + TIMEOUT
    state = {}
    while time.monotonic() < deadline:
        answer = browser.call("Runtime.evaluate", session, expression=STATE, returnByValue=True)
        # Before the page is there, the expression fails.
        state = answer["result"].get("value", {})
        if state.get("verdict"):
            return state, session
        time.sleep(0.2)
    raise RuntimeError(f"no verdict after {TIMEOUT} s: {state}")


def expected_cases():
    vectors = json.loads((REPOSITORY / "conformance/vectors/v1/decode.json").read_text())
    return 3 * sum(len(vectors[kind]) for kind in ("records", "digests", "scales"))


def main():
    arguments = argparse.ArgumentParser(description="checks the conformance page in headless Chromium")
    arguments.add_argument("--screenshot", type=pathlib.Path, help="save the page as PNG")
    arguments = arguments.parse_args()

    executable = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if executable is None:
        sys.exit("web: no Chromium found, expected chromium-headless-shell or chromium")

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Files, directory=str(REPOSITORY))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/conformance/web/"

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(executable, profile)
        try:
            state, session = visit(browser, url)
            print(f"web: {state['text']} {state['cases']} cases, {state['adapter']}, {state['speed']}")
            if arguments.screenshot:
                image = browser.call("Page.captureScreenshot", session, format="png")["data"]
                arguments.screenshot.write_bytes(base64.b64decode(image))
            cases = expected_cases()
            if state["verdict"] != "exact" or state["cases"] != f"{cases} of {cases}":
                sys.exit(f"web: FAILED, expected {cases} exact cases\n{state['failures']}")

            right, wrong = "i * part.rate / 4)", "i * part.rate / 4 + 1)"
            kernel = (REPOSITORY / "kernels/decode.wgsl").read_text()
            assert kernel.count(right) == 1
            Files.kernel = kernel.replace(right, wrong)
            state, _ = visit(browser, url)
            print(f"web, windows one bit late: {state['text']}")
            if state["verdict"] != "failed" or not state["text"].startswith("Failed: "):
                sys.exit("web: FAILED, the page does not see a wrong kernel")
        finally:
            browser.close()


if __name__ == "__main__":
    main()
