"""The web page in a real Chromium, against the demo model: web_page.py LILY MODEL [--screenshot docs/web.png]

Each test has a fresh browser profile. A test fails on any error in the browser's console and on any request to another
host. Skipped (77) where there is no Chromium, failed where CI=true.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from urllib.parse import urlsplit

from playwright.sync_api import expect, sync_playwright

TESTS = []
LONG_STORY = "Tell me a long story about a fox."


def test(function):
    TESTS.append(function)
    return function


def find_chromium():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    for path in ("/Applications/Chromium.app/Contents/MacOS/Chromium",
                 "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"):
        if os.path.exists(path):
            return path
    return None


class Server:
    """A lily serve on a free port, ended with the with block."""

    def __init__(self, lily, model, *options):
        self.command = [lily, "serve", "--threads", "1", "--model", model, "--port", "0", "--ctx", "4096", *options]

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        watchdog = threading.Timer(60, self.process.kill)
        watchdog.start()
        for line in self.process.stdout:
            if found := re.search(r"listening on (http://\S+)", line):
                self.url = found[1]
            if "ready" in line:
                watchdog.cancel()
                return self
        watchdog.cancel()
        self.log.seek(0)
        raise RuntimeError(f"lily serve ended: {self.log.read()}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=30)
        self.process.stdout.close()


class Page:
    """A page with a fresh profile that keeps what it should not have done."""

    def __init__(self, browser, url, **options):
        self.context = browser.new_context(viewport={"width": 1200, "height": 800}, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(30000)
        self.url = url
        self.faults = []
        self.allowed = []  # pieces of console errors that a test provokes
        self.page.on("console", lambda message: message.type == "error" and self.faults.append(message.text))
        self.page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        self.page.on("dialog", lambda dialog: (self.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", self.check_host)

    def check_host(self, request):
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.faults.append(f"request to another host: {request.url}")

    def __enter__(self):
        self.page.goto(self.url)
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            faults = [fault for fault in self.faults if not any(piece in fault for piece in self.allowed)]
            assert not faults, faults
        self.context.close()

    def __getattr__(self, name):
        return getattr(self.page, name)

    def send(self, text):
        self.page.fill("#prompt", text)
        self.page.press("#prompt", "Enter")

    def done(self):
        """Waits for the end of the reply."""
        expect(self.page.locator("#send")).to_have_text("Send", timeout=60000)

    def settings(self, **values):
        self.page.click("#open-settings")
        for name, value in values.items():
            self.page.fill(f"#settings [name={name}]", str(value))
        self.page.click("#settings >> text=Done")

    def endless(self):
        """From now on replies go on for seconds, however fast the machine."""
        def go_on(route):
            route.continue_(post_data={**route.request.post_data_json, "ignore_eos": True, "max_tokens": 3000})
        self.page.route("**/v1/chat/completions", go_on)

    def natural(self):
        self.page.unroute("**/v1/chat/completions")

    def answers(self, text):
        """From now on replies are `text`, whatever is asked: the demo model does not write Markdown."""
        pieces = [{"choices": [{"delta": {"content": text[i:i + 7]}}]} for i in range(0, len(text), 7)]
        pieces.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        body = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + "data: [DONE]\n\n"
        self.page.route("**/v1/chat/completions", lambda route: route.fulfill(content_type="text/event-stream", body=body))


@test
def answers_and_folds_thinking(browser, url):
    with Page(browser, url) as page:
        page.send("What is the capital of France?")
        expect(page.locator(".message.user .bubble")).to_have_text("What is the capital of France?")
        page.done()
        reply = page.locator(".message.assistant")
        assert reply.locator(".content").inner_text().strip(), "no answer"
        details = reply.locator("details.thinking")
        expect(details).to_be_visible()
        assert details.get_attribute("open") is None, "thinking is not folded"
        expect(details.locator("summary")).to_contain_text("Thought for")
        expect(reply.locator(".reasoning")).not_to_be_visible()
        details.locator("summary").click()
        expect(reply.locator(".reasoning")).to_be_visible()
        expect(reply.locator(".costs")).to_contain_text("tokens/s")
        expect(reply.locator(".costs")).to_contain_text("prompt tokens reused")
        expect(page.locator("#model")).to_contain_text("4,096 tokens")
        expect(page.locator("#conversations li")).to_have_count(1)
        page.send("And of Italy?")
        page.done()
        text = page.locator(".message.assistant .costs").nth(1).inner_text()
        reused, total = re.search(r"(\d+) of (\d+) prompt tokens reused", text).groups()
        assert 0 < int(reused) <= int(total), text


@test
def markdown_and_code(browser, url):
    with Page(browser, url) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.answers("# Title\n\nSome **bold** and `code`.\n\n- one\n- two\n\n```python\nprint('<b>hi</b>')\n```\n\n"
                     "| a | b |\n|---|--:|\n| 1 | 2 |\n\n[link](https://example.com/x)")
        page.send("x")
        page.done()
        content = page.locator(".content")
        expect(content.locator("h1")).to_have_text("Title")
        expect(content.locator("strong")).to_have_text("bold")
        expect(content.locator("li")).to_have_count(2)
        expect(content.locator("td")).to_have_count(2)
        expect(content.locator("td").nth(1)).to_have_css("text-align", re.compile("right"))
        expect(content.locator(".code pre")).to_have_text("print('<b>hi</b>')")
        expect(content.locator("a")).to_have_attribute("rel", "noopener noreferrer")
        content.locator("button[aria-label='Copy code']").click()
        expect(content.locator("button[aria-label='Copy code']")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()").rstrip("\n") == "print('<b>hi</b>')"


HOSTILE = """<img src=x onerror="window.hacked = 1; alert(1)"> <script>window.hacked = 2</script>

<svg onload="window.hacked = 3"><iframe srcdoc="<script>parent.hacked = 4</script>"></iframe>

[click](javascript:window.hacked=5) ![picture](https://example.com/spy.png) [d](data:text/html,<script>1</script>)

`<img src=x onerror=alert(1)>`

```html"onmouseover="window.hacked=6
<script>window.hacked = 7</script>
```

<a href="https://example.com" onclick="window.hacked=8" style="position:fixed;inset:0">x</a>
"""


@test
def hostile_replies_do_not_run(browser, url):
    with Page(browser, url) as page:
        page.answers(HOSTILE)
        page.send('<img src=x onerror="window.hacked = 9">')
        page.done()
        page.reload()  # from the browser's storage too
        expect(page.locator(".message")).to_have_count(2)
        for selector in ("img", "script", "svg", "iframe", "[onerror]", "[onclick]", "[onload]", "[onmouseover]", "[style]"):
            assert page.locator(f"#messages {selector}").count() == 0, selector
        for link in page.locator("#messages a").all():
            assert link.get_attribute("href") in (None, "https://example.com/spy.png"), link.get_attribute("href")
        expect(page.locator(".content")).to_contain_text('<img src=x onerror="window.hacked = 1; alert(1)">')
        expect(page.locator("#conversations a")).to_have_text('<img src=x onerror="window.hacked = 9">')
        assert page.evaluate("window.hacked") is None


@test
def policy_forbids_inline_scripts(browser, url):
    with Page(browser, url) as page:
        page.allowed += ["Content Security Policy", "TrustedHTML", "TrustedScript"]
        assert page.evaluate("""() => {
          const script = document.createElement('script');
          try { script.textContent = 'window.hacked = 1'; document.body.append(script); } catch {}
          try { document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="window.hacked = 2">'); } catch {}
          return window.hacked;
        }""") is None
        headers = page.request.get(url).headers
        assert "'unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        again = page.request.get(url, headers={"If-None-Match": headers["etag"]})
        assert again.status == 304, again.status


@test
def plain_text_without_libraries(browser, url):
    """What a build without marked and DOMPurify serves: empty files in their places."""
    with Page(browser, url) as page:
        for name in ("marked", "dompurify"):
            page.route(f"**/web/{name}.js", lambda route: route.fulfill(content_type="text/javascript", body=""))
        page.reload()
        page.answers(HOSTILE)
        page.send("x")
        page.done()
        expect(page.locator(".content *")).to_have_count(0)
        expect(page.locator(".content")).to_contain_text("<script>window.hacked = 2</script>")
        assert page.evaluate("window.hacked") is None


@test
def stop_and_regenerate(browser, url):
    with Page(browser, url) as page:
        page.click("#think")
        page.endless()
        page.send(LONG_STORY)
        expect(page.locator(".message.live .content")).to_have_text(re.compile(".{5}"))
        page.keyboard.press("Escape")
        page.done()
        expect(page.locator(".message.assistant .costs")).to_contain_text("stopped")
        assert page.locator(".message.assistant .content").inner_text()
        page.natural()
        page.settings(max_tokens=5)
        page.click("button[aria-label='Regenerate reply']")
        page.done()
        expect(page.locator(".message")).to_have_count(2)
        expect(page.locator(".message.assistant .costs")).to_contain_text("most tokens allowed")
        page.endless()
        page.click("button[aria-label='Regenerate reply']")
        expect(page.locator("#send")).to_have_text("Stop")
        page.click("#send")
        page.done()
        expect(page.locator(".message.assistant .costs")).to_contain_text("stopped")


@test
def edit_and_resend(browser, url):
    with Page(browser, url) as page:
        page.click("#think")
        page.settings(max_tokens=20)
        for text in ("Hello", "How are you?"):
            page.send(text)
            page.done()
        expect(page.locator(".message")).to_have_count(4)
        page.press("#prompt", "ArrowUp")  # the last one
        field = page.locator(".editor textarea")
        expect(field).to_be_focused()
        expect(field).to_have_value("How are you?")
        field.press("Escape")
        expect(page.locator(".editor")).to_have_count(0)
        expect(page.locator(".message")).to_have_count(4)
        page.locator(".message.user").first.hover()
        page.locator("button[aria-label='Edit message']").first.click()
        sent = []
        page.on("request", lambda request: sent.append(request.post_data_json) if request.method == "POST" else None)
        field.fill("Good morning")
        field.press("Enter")
        page.done()
        expect(page.locator(".message")).to_have_count(2)
        expect(page.locator(".bubble")).to_have_text("Good morning")
        assert sent[0]["messages"] == [{"role": "user", "content": "Good morning"}], sent


@test
def keyboard(browser, url):
    with Page(browser, url) as page:
        expect(page.locator("#prompt")).to_be_focused()
        page.settings(max_tokens=10)
        page.click("#prompt")
        page.keyboard.type("one")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("two")
        expect(page.locator("#prompt")).to_have_value("one\ntwo")
        expect(page.locator(".message")).to_have_count(0)
        page.keyboard.press("Enter")
        page.done()
        expect(page.locator(".bubble")).to_have_text("one\ntwo")
        expect(page.locator("#prompt")).to_have_value("")
        unnamed = page.evaluate("""() => [...document.querySelectorAll('button, input, select, textarea')]
          .filter((node) => !(node.ariaLabel || node.textContent.trim() || node.labels?.length)).map((node) => node.outerHTML)""")
        assert not unnamed, unnamed


@test
def settings_survive_reload(browser, url):
    with Page(browser, url) as page:
        page.settings(system="Be brief.", temperature=0.3, max_tokens=17, seed=5)
        page.click("#think")
        page.reload()
        page.click("#open-settings")
        for name, value in {"system": "Be brief.", "temperature": "0.3", "max_tokens": "17", "seed": "5", "top_p": ""}.items():
            expect(page.locator(f"#settings [name={name}]")).to_have_value(value)
        expect(page.locator("#settings [name=thinking]")).not_to_be_checked()
        page.click("#settings >> text=Done")
        with page.expect_request("**/v1/chat/completions") as request:
            page.send("Hi")
        body = request.value.post_data_json
        assert (body["temperature"], body["max_tokens"], body["seed"]) == (0.3, 17, 5), body
        assert "top_p" not in body and body["chat_template_kwargs"] == {"enable_thinking": False}, body
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}, body
        page.done()


@test
def conversations(browser, url):
    with Page(browser, url) as page:
        page.click("#think")
        page.settings(max_tokens=10)
        page.send("First")
        page.done()
        page.click("#new-chat")
        expect(page.locator(".message")).to_have_count(0)
        page.send("Second")
        page.done()
        rows = page.locator("#conversations li")
        expect(rows).to_have_count(2)
        page.reload()
        expect(page.locator(".bubble")).to_have_text("Second")
        page.click("#conversations >> text=First")
        expect(page.locator(".bubble")).to_have_text("First")
        page.hover("#conversations >> text=First")
        page.click("button[aria-label='Rename First']")
        page.fill("#conversations input", "Renamed")
        page.keyboard.press("Enter")
        expect(page.locator("#title")).to_have_text("Renamed")
        page.hover("#conversations >> text=Renamed")
        page.click("button[aria-label='Delete Renamed']")
        expect(rows).to_have_count(1)
        page.click("#toast >> text=Undo")
        expect(rows).to_have_count(2)
        page.click("#conversations >> text=Second")
        page.endless()
        page.send(LONG_STORY)
        expect(page.locator(".message.live")).to_be_visible()
        page.click("button[aria-label='Delete Second']")  # with its reply in the making
        expect(rows).to_have_count(1)
        expect(page.locator(".message")).to_have_count(0)
        page.send("Third")
        page.keyboard.press("Escape")
        page.done()
        expect(rows).to_have_count(2)


@test
def dark_mode(browser, url):
    background = "getComputedStyle(document.body).backgroundColor"
    with Page(browser, url, color_scheme="dark") as page:
        dark = page.evaluate(background)
        page.emulate_media(color_scheme="light")
        light = page.evaluate(background)
        assert dark != light, dark
        page.click("#open-settings")
        page.select_option("#settings [name=theme]", "dark")
        assert page.evaluate(background) == dark
        page.reload()
        assert page.evaluate(background) == dark


@test
def metrics_view(browser, url):
    with Page(browser, url) as page:
        page.send("Hello")
        page.done()
        page.click("#open-metrics")
        expect(page.locator("#cards .card")).to_have_count(6)
        expect(page.locator("#cards .line").first).to_have_attribute("points", re.compile(r".+ .+"), timeout=10000)
        page.click("#metrics summary")
        row = page.locator("#counters tr", has_text="Generated tokens.")
        assert int(row.locator("td").inner_text().replace(",", "")) > 0
        page.click("#open-metrics")
        expect(page.locator(".bubble")).to_have_text("Hello")


@test
def loading_and_errors(browser, url):
    with Page(browser, url) as page:
        page.allowed += ["503", "400"]
        page.route("**/health", lambda route: route.fulfill(status=503, body="{}"))
        page.reload()
        expect(page.locator("#notice")).to_contain_text("being loaded")
        page.fill("#prompt", "Hi")
        expect(page.locator("#send")).to_be_disabled()
        page.unroute("**/health")
        expect(page.locator("#send")).to_be_enabled()
        expect(page.locator("#notice")).not_to_be_visible()
        page.settings(system="word " * 5000)  # longer than the context
        page.send("Hi")
        expect(page.locator(".problem")).to_contain_text("tokens")


def key(browser, url):
    with Page(browser, url) as page:
        page.allowed += ["401"]
        expect(page.locator("#key-dialog")).to_be_visible()
        page.fill("#key", "wrong")
        page.press("#key", "Enter")
        expect(page.locator("#key-hint")).to_have_text("That key is wrong.")
        page.fill("#key", "secret")
        page.press("#key", "Enter")
        expect(page.locator("#model")).to_contain_text("4,096 tokens")
        page.send("Hello")
        page.done()
        assert page.locator(".message.assistant .content").inner_text()
        assert "secret" not in page.evaluate("JSON.stringify(localStorage)")


SHOWN = """Adding the numbers **1 to n** does not need a loop, since they pair up to `n + 1`:

```python
def triangle(n: int) -> int:
    return n * (n + 1) // 2

print(triangle(100))  # 5050
```

| way | steps for n = 100 |
|---|--:|
| loop | 100 |
| formula | 1 |
"""


def screenshot(browser, url, path):
    """Real answers of the demo model, below one made-up reply that shows Markdown, since the demo model writes none."""
    with Page(browser, url, device_scale_factor=1.5) as page:
        page.set_viewport_size({"width": 1200, "height": 1080})
        page.settings(seed=3)
        for question in ("What color is the sky?", "Tell me a short story about a fox."):
            page.click("#new-chat")
            page.send(question)
            page.done()
        page.click("#new-chat")
        page.answers(SHOWN)
        page.send("How do I add the numbers from 1 to n in Python?")
        page.done()
        page.natural()
        for question in ("What is the capital of France?", "What is the capital of Italy?"):
            page.send(question)
            page.done()
        page.mouse.move(0, 0)
        page.screenshot(path=path)


def run(browser, arguments):
    failed = 0
    tests = [(function, ()) for function in TESTS]
    for function, options in tests + [(key, ("--api-key", "secret"))]:
        if arguments.only and arguments.only != function.__name__:
            continue
        try:
            if arguments.url and not options:
                function(browser, arguments.url)
            else:
                with Server(arguments.lily, arguments.model, *options) as server:
                    function(browser, server.url)
            print(f"ok      {function.__name__}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED  {function.__name__}: {type(error).__name__}: {error}", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lily")
    parser.add_argument("model")
    parser.add_argument("--only", help="one test")
    parser.add_argument("--url", help="use this server instead of starting one")
    parser.add_argument("--screenshot", type=pathlib.Path, help="make this picture instead of testing")
    arguments = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print("no Chromium found: Debian's package is chromium")
        return 1 if os.environ.get("CI") == "true" else 77
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        if arguments.screenshot:
            with Server(arguments.lily, arguments.model) as server:
                screenshot(browser, arguments.url or server.url, arguments.screenshot)
            return 0
        failed = run(browser, arguments)
        browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
