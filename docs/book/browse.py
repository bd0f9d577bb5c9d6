"""Opens every page of the book in a browser without a window: as narrow as a phone and as wide as a
desktop, light and dark. Prints each error of the console, each file that is missing, and each page
that is wider than the window; exits 1 if there is any. Where no browser is installed, it says so.

    docs/book/browse.py build/book [--shots FOLDER] [PAGE...]    --shots writes a picture of each
"""
import argparse
import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WIDTHS = {"phone": 400, "desktop": 1200}
TALLEST = 16000  # of a picture; also of the window, so that figures load that wait until they are seen


def installed_browser():
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One tab, driven by the DevTools protocol over a pipe: messages of JSON, each ended by a 0."""

    def __init__(self, program, folder):
        commands, self.writes = os.pipe()
        self.reads, answers = os.pipe()
        kept = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (commands, answers)]  # 3 and 4 may be taken
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{kept[0]} 4>&{kept[1]}', "bash", program, "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", f"--user-data-dir={folder}/browser",
             "--remote-debugging-pipe", "about:blank"],
            pass_fds=kept, env={**os.environ, "HOME": folder}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (commands, answers, *kept):
            os.close(end)
        self.unread, self.number, self.session, self.loaded = b"", 0, None, False
        self.events, self.open_requests, self.new_sessions = [], {}, []
        tab = next(each for each in self.ask("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=tab["targetId"], flatten=True)["sessionId"]
        self.new_sessions.clear()
        self.watch(self.session)

    def watch(self, session):
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable", session)
        self.ask("Target.setAutoAttach", session, autoAttach=True, waitForDebuggerOnStart=False, flatten=True)

    def read(self):
        while b"\0" not in self.unread:
            more = os.read(self.reads, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self.unread += more
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def ask(self, method, session=None, **parameters):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if session or self.session:
            message["sessionId"] = session or self.session
        os.write(self.writes, json.dumps(message).encode() + b"\0")
        while (answer := self.read()).get("id") != number:
            self.note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def note(self, event):
        method, told = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.open_requests[told["requestId"]] = told["request"]["url"]
        elif method in ("Network.loadingFinished", "Network.loadingFailed"):
            address = self.open_requests.pop(told["requestId"], "a file")
            if method == "Network.loadingFailed" and not told.get("canceled"):
                self.events.append(f"{address}: {told['errorText']}")
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.events.append(f"{details.get('url', '')}: {details.get('exception', {}).get('description') or details['text']}")
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
            self.events.append("console: " + " ".join(str(each.get("value", each.get("description"))) for each in told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            if told["entry"]["source"] != "network":  # Network.loadingFailed has told it
                self.events.append(f"{told['entry'].get('url', '')}: {told['entry']['text']}")
        elif method == "Target.attachedToTarget":
            self.new_sessions.append(told["sessionId"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def value_of(self, script):
        return self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)["result"].get("value")

    def settle(self, seconds=0.15):
        """Until nothing has been asked for during these seconds."""
        until, latest = time.monotonic() + seconds, time.monotonic() + 20
        while time.monotonic() < min(until, latest):
            before = len(self.open_requests)
            self.value_of("new Promise(done => setTimeout(done, 30))")
            while self.new_sessions:  # a frame with a process of its own
                self.watch(self.new_sessions.pop())
            if self.open_requests or before:
                until = time.monotonic() + seconds

    def resize(self, width, height):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def colours(self, name):
        self.ask("Emulation.setEmulatedMedia", media="screen", features=[{"name": "prefers-color-scheme", "value": name}])

    def show(self, address, width):
        self.loaded = False
        self.colours("light")
        self.resize(width, 900)
        self.ask("Page.navigate", url=address)
        while not self.loaded:
            self.note(self.read())
        height = self.value_of("document.documentElement.scrollHeight")
        self.resize(width, min(max(height, 900), TALLEST))
        self.settle()

    def shot(self, file):
        file.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.ask("Browser.close")
        self.process.wait()


def findings(browser, page, shots):
    for kind, width in WIDTHS.items():
        browser.show(page.as_uri(), width)
        needed = browser.value_of("document.documentElement.scrollWidth")
        if needed > width:
            yield f"{needed} pixels wide in a window of {width}"
        for colour in ("light", "dark"):
            browser.colours(colour)
            browser.settle(0.05)
            if shots:
                browser.shot(shots / f"{page.stem}-{kind}-{colour}.png")
    yield from dict.fromkeys(browser.events)
    browser.events.clear()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("book", type=Path)
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--shots", type=Path)
    arguments = parser.parse_args()
    program = installed_browser()
    if program is None:
        print("SKIPPED: the pages in a browser, because none is installed (apt-get install chromium)")
        return 0
    pages = [page for page in sorted(arguments.book.resolve().rglob("*.html")) if "_static" not in page.parts]
    pages = [page for page in pages if not arguments.pages or page.stem in arguments.pages]
    if arguments.shots:
        arguments.shots.mkdir(parents=True, exist_ok=True)
    failed, folder = 0, tempfile.mkdtemp(prefix="ringside-browser-")
    browser = Browser(program, folder)
    for number, page in enumerate(pages, 1):
        print(f"[{number}/{len(pages)}] {page.name}", flush=True)  # docs/build-book shows how far it is
        for finding in findings(browser, page, arguments.shots):
            print(f"browse.py: {page.relative_to(arguments.book.resolve())}: {finding}", flush=True)
            failed = 1
    browser.close()
    shutil.rmtree(folder, ignore_errors=True)  # a process of the browser may still write
    print(f"browse.py: {len(pages)} pages, at {len(WIDTHS)} widths, light and dark")
    return failed


if __name__ == "__main__":
    sys.exit(main())
