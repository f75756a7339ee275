"""Drives `lily chat` through a pseudo terminal, as a person would, and looks at the screen with a terminal emulator.

usage: chat_terminal.py LILY MODEL
"""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

import pyte

LILY, MODEL = sys.argv[1], sys.argv[2]
CTRL_C, CTRL_D = "\x03", "\x04"
UP, LEFT, RIGHT = "\x1b[A", "\x1b[D", "\x1b[C"
STYLE = re.compile(r"\x1b\[[0-9;]*m")
# Never ends by itself, for all practical purposes: random tokens.
ENDLESS = ["--nothink", "--temperature", "5", "--top-k", "0", "--top-p", "1"]

RUNNING = []  # chats that a failed test leaves behind


class Chat:
    """A running `lily chat` on a terminal of 60 x 20."""

    def __init__(self, state, *options, **environment):
        self.master, slave = pty.openpty()
        self.settings = termios.tcgetattr(slave)
        self.slave = slave
        self.resize(60, 20)
        self.output = ""
        self.screen = pyte.Screen(60, 20)
        self.stream = pyte.Stream(self.screen)
        variables = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
        variables |= {"TERM": "xterm-256color", "XDG_STATE_HOME": state} | environment
        command = [LILY, "chat", "--model", MODEL, "--seed", "1", *options]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=variables, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        RUNNING.append(self)
        self.wait_for("> $")

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the terminal has no other end any more
            return False
        text = data.decode("utf-8", "replace")
        self.output += text
        self.stream.feed(text)
        return bool(data)

    def text(self):
        """The screen up to the cursor's line, which ends at the cursor."""
        rows = [row.rstrip() for row in self.screen.display[: self.screen.cursor.y]]
        return "\n".join(rows + [self.screen.display[self.screen.cursor.y][: self.screen.cursor.x]])

    def wait_for(self, pattern, seconds=60):
        """Until the pattern is on the screen."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text()):
            if time.monotonic() > end:
                raise AssertionError(f"no {pattern!r} on the screen:\n{self.text()}")
            self.read(0.1)

    def settle(self):
        while self.read(0.15):
            pass

    def send(self, keys):
        os.write(self.master, keys.encode())

    def say(self, text, wait=True):
        before = self.output.count(" tok/s]")
        self.send(text + "\r")
        end = time.monotonic() + 60
        while wait and self.output.count(" tok/s]") == before:
            if time.monotonic() > end:
                raise AssertionError(f"no answer to {text!r}:\n{self.text()}")
            self.read(0.1)
        if wait:
            self.wait_for("> $")

    def command(self, text):
        self.send(text + "\r")
        self.settle()

    def leave(self, keys=CTRL_D):
        """The exit code; everything is closed."""
        self.send(keys)
        end = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.1)
        self.settings_after = termios.tcgetattr(self.slave)
        self.kill()
        return self.process.wait(10)

    def kill(self):
        if self.slave is None:
            return
        if self.process.poll() is None:
            self.process.kill()
        os.close(self.slave)
        os.close(self.master)
        self.slave = None


class ChatTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.state = self.folder.name
        self.saved = str(Path(self.folder.name) / "chat.json")

    def tearDown(self):
        while RUNNING:
            RUNNING.pop().kill()
        self.folder.cleanup()

    def messages(self, chat):
        Path(self.saved).unlink(missing_ok=True)
        chat.command("/save " + self.saved)
        return [(m["role"], m["content"]) for m in json.loads(Path(self.saved).read_text())["messages"]]

    def questions(self, chat):
        return [content for role, content in self.messages(chat) if role == "user"]

    def test_conversation(self):
        chat = Chat(self.state, "--nothink", "--greedy")
        chat.say("My name is Anna.")
        chat.say("What is my name?")
        self.assertIn("Anna", dict(enumerate(self.messages(chat)))[3][1])
        chat.command("/stats")
        chat.wait_for(r"2 replies: \d+ tokens at [\d.]+ tok/s")
        chat.command("/reset")
        self.assertEqual(self.messages(chat), [])
        self.assertEqual(chat.leave("/quit\r"), 0)
        self.assertEqual(chat.settings_after, chat.settings)

    def test_editing_with_wide_characters(self):
        chat = Chat(self.state, "--nothink")
        chat.send("ae\u0301\u4f60\u597d")
        chat.wait_for("> a\u00e9 ?\u4f60 ?\u597d")  # the emulator composes, and pads wide characters
        self.assertEqual(chat.screen.cursor.x, 8)
        chat.send(LEFT + LEFT + "X")
        chat.settle()
        self.assertEqual(chat.screen.cursor.x, 5)
        chat.send("\x7f\x7f")  # the X, then the e with its accent
        chat.settle()
        self.assertEqual(chat.screen.cursor.x, 3)
        chat.send("\x05!")
        chat.say("")
        self.assertEqual(self.questions(chat), ["a\u4f60\u597d!"])
        chat.leave()

    def test_long_lines_wrap(self):
        chat = Chat(self.state, "--nothink")
        chat.send("0123456789" * 12)
        chat.settle()
        rows = [line.rstrip() for line in chat.screen.display if line.strip()]
        self.assertEqual(rows[-3:], ["> " + "0123456789" * 5 + "01234567", "  " + "89" + "0123456789" * 5 + "012345", "  6789"])
        chat.send("\x01" + RIGHT)
        chat.settle()
        self.assertEqual(chat.screen.cursor.x, 3)
        chat.send("\x15\x0b")
        chat.settle()
        self.assertRegex(chat.text(), r"> $")
        self.assertNotIn("6789", chat.text())
        chat.leave()

    def test_text_taller_than_the_screen(self):
        chat = Chat(self.state, "--nothink")
        lines = [f"line {i}" for i in range(50)]
        chat.send("\x1b[200~" + "\r\n".join(lines) + "\x1b[201~")
        chat.settle()
        self.assertEqual([line.strip() for line in chat.screen.display], lines[-20:])
        chat.send(UP * 49)
        chat.settle()
        self.assertEqual(chat.screen.display[0].rstrip(), "> line 0")
        chat.say("")
        self.assertEqual(self.questions(chat), ["\n".join(lines)])
        chat.leave()

    def test_several_lines(self):
        chat = Chat(self.state, "--nothink")
        chat.send("one\\\r")
        chat.settle()
        chat.say("two")
        chat.send('"""\rthree\r\rfour\r')
        chat.settle()
        chat.say('"""')
        chat.send("five\x1b\rsix\nseven")
        chat.say("")
        chat.send("\x1b[200~eight\r\tnine\x03\x1b[A\x1b[201~")
        chat.settle()
        self.assertIn("eight", chat.text())
        chat.say("")
        self.assertEqual(
            self.questions(chat),
            ["one\ntwo", "three\n\nfour", "five\nsix\nseven", "eight\n\tnine\x03\x1b[A"],
        )
        chat.leave()

    def test_history(self):
        chat = Chat(self.state, "--nothink")
        chat.say("first \u00e9")
        chat.say("second\\\rline")
        chat.leave()
        chat = Chat(self.state, "--nothink")
        chat.send("draft" + UP)
        chat.settle()
        self.assertRegex(chat.text(), r"> second\n  line")
        chat.send(UP + UP)
        chat.settle()
        self.assertRegex(chat.text(), r"> first \u00e9")
        chat.send("\x0e\x0e")
        chat.settle()
        self.assertRegex(chat.text(), r"> draft$")
        chat.send("\x10\x10")
        chat.say("")
        self.assertEqual(self.questions(chat), ["first \u00e9"])
        chat.leave()

    def test_interrupting_an_answer_keeps_the_session(self):
        chat = Chat(self.state, *ENDLESS)
        chat.say("Go on and on.", wait=False)
        chat.wait_for(r"Go on and on\.\n(.|\n){100}")
        chat.send("typed ahead" + CTRL_C)
        chat.wait_for(r"\[stopped; \d+ tokens")
        chat.wait_for("> typed ahead$")
        chat.send(CTRL_C)
        chat.settle()
        roles = [role for role, _ in self.messages(chat)]
        self.assertEqual(roles, ["user", "assistant"])
        chat.leave()

    def test_interrupting_the_input(self):
        chat = Chat(self.state)
        chat.send("half a message" + CTRL_C)
        chat.wait_for(r"message\^C")
        chat.wait_for("> $")
        chat.send("x" + CTRL_D)  # not the end: the line is not empty
        chat.settle()
        self.assertIsNone(chat.process.poll())
        chat.command("\x15/think")
        chat.send(CTRL_C)
        chat.wait_for("Ctrl-C once more")
        self.assertEqual(chat.leave(CTRL_C), 0)
        self.assertEqual(chat.settings_after, chat.settings)

    def test_end_by_signal_restores_the_terminal(self):
        chat = Chat(self.state)
        chat.process.send_signal(signal.SIGTERM)
        self.assertEqual(chat.leave(""), 0)
        self.assertEqual(chat.settings_after, chat.settings)

    def test_thoughts_are_dimmed(self):
        chat = Chat(self.state, "--think", "--greedy")
        chat.say("Hello")
        self.assertRegex(chat.output, r"\x1b\[2m[^\x1b]{10,}\x1b\[0m\r\n\r\n\w")
        chat.leave()

    def test_no_color(self):
        chat = Chat(self.state, "--think", "--greedy", NO_COLOR="1")
        chat.say("Hello")
        self.assertNotRegex(chat.output, STYLE)
        self.assertRegex(chat.text(), r"<think>\n.*(\n.*)*\n</think>\n\n\w")
        chat.leave()

    def test_long_prompts_show_their_progress(self):
        long = Path(self.folder.name) / "long.json"
        for words in (400, 1600, 6000):  # however fast the machine is, one of them takes a moment
            text = " ".join(f"word{i}" for i in range(words))
            long.write_text(json.dumps([{"role": "system", "content": text}]))
            chat = Chat(self.state, "--nothink", "--threads", "1", "--max-tokens", "8", "--load", str(long))
            chat.say("Hello")
            if "reading" in chat.output:
                break
            chat.leave()
        self.assertRegex(chat.output, r"reading \[#* *\] \d+ of \d+ tokens, \d+/s")
        self.assertNotIn("reading", chat.text())
        self.assertRegex(chat.text(), r"\[cut off, no more tokens allowed; 8 tokens")
        # Stopped while it is read: nothing happened.
        chat.command("/system " + " ".join(f"other{i}" for i in range(words)))
        chat.say("Again", wait=False)
        chat.wait_for("reading")
        chat.send(CTRL_C)
        chat.wait_for("stopped before the answer")
        self.assertEqual(self.questions(chat), ["Hello"])
        chat.leave()

    def test_demo_tools_are_run(self):
        chat = Chat(self.state, "--nothink", "--greedy", "--tools", "demo")
        chat.say("What is 12 plus 30?")
        chat.settle()
        self.assertRegex(chat.text(), r'-> add \{"a":12,"b":30\}\n<- 42')
        self.assertIn(("tool", "42"), self.messages(chat))
        chat.leave()

    def test_tools_of_a_file_are_answered_by_the_user(self):
        tools = Path(self.folder.name) / "tools.json"
        city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        function = {"name": "get_weather", "description": "Get the current weather in a city.", "parameters": city}
        tools.write_text(json.dumps([{"type": "function", "function": function}]))
        chat = Chat(self.state, "--nothink", "--greedy")
        chat.command(f"/tools {tools}")
        chat.send("What is the weather in Paris?\r")
        chat.wait_for(r'-> get_weather \{"city":"Paris"\}')
        chat.wait_for("result of get_weather> $")
        chat.say("21 degrees, sunny")
        self.assertRegex(self.messages(chat)[3][1], "sunny")
        chat.leave()

    def test_mistakes_are_explained(self):
        chat = Chat(self.state, "--ctx", "64", "--nothink")
        chat.command("/nonsense")
        chat.wait_for("there is no command /nonsense")
        chat.command("/load /nowhere/x.json")
        chat.wait_for(r"/nowhere/x\.json: No such file or directory")
        chat.send("too long " * 50 + "\r")
        chat.wait_for(r"the conversation has \d+ tokens, the context holds 64")
        self.assertEqual(self.messages(chat), [])
        chat.command("/help")
        chat.wait_for("/tools off|demo|FILE.json")
        self.assertEqual(chat.leave(), 0)


class PipeTest(unittest.TestCase):
    def run_lily(self, text, *options, **environment):
        command = [LILY, "chat", "--model", MODEL, "--greedy", "--nothink", *options]
        return subprocess.run(
            command, input=text, capture_output=True, text=True, env=os.environ | environment, timeout=120, check=False
        )

    def test_each_line_is_a_message(self):
        result = self.run_lily("My name is Anna.\nWhat is my name?\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("\x1b", result.stdout + result.stderr)
        self.assertEqual(len(result.stdout.strip().split("\n")), 2, result.stdout)
        self.assertIn("Anna", result.stdout.split("\n")[1])

    def test_several_lines_and_commands(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "chat.json"
            text = '/system Be brief.\none\\\ntwo\n"""\nthree\nfour\n"""\n /quit is text\n' + f"/save {file}\n"
            result = self.run_lily(text, "--max-tokens", "4")
            self.assertEqual(result.returncode, 0, result.stderr)
            messages = json.loads(file.read_text())["messages"]
            asked = [m["content"] for m in messages if m["role"] != "assistant"]
            self.assertEqual(asked, ["Be brief.", "one\ntwo", "three\nfour", " /quit is text"])

    def test_thoughts_are_marked(self):
        result = self.run_lily("Hello\n", "--think")
        self.assertRegex(result.stdout, r"\A<think>\n[^<]+\n</think>\n\n\w")

    def test_save_replaces_only_what_it_should(self):
        with tempfile.TemporaryDirectory() as folder:
            file, link, target = (Path(folder) / name for name in ("chat.json", "link.json", "target.json"))
            file.write_text("kept")
            result = self.run_lily(f"/save {file}\n")
            self.assertEqual((result.returncode, file.read_text()), (1, "kept"))
            self.assertIn("this conversation is empty", result.stderr)
            target.write_text("old")
            link.symlink_to(target)
            self.assertEqual(self.run_lily(f"Hi\n/save {link}\n", "--max-tokens", "2").returncode, 0)
            self.assertTrue(link.is_symlink())
            self.assertIn("messages", json.loads(target.read_text()))
            pipe = Path(folder) / "pipe"
            os.mkfifo(pipe)
            self.assertIn("no regular file", self.run_lily(f"Hi\n/save {pipe}\n", "--max-tokens", "2").stderr)
            self.assertTrue(pipe.is_fifo())

    def test_output_that_cannot_be_written_is_an_error(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("this system has no full device")
        for arguments in (["info", "--model", MODEL], ["--help"], ["tokenize", "--model", MODEL, "text"]):
            with open("/dev/full", "w") as full:
                result = subprocess.run([LILY, *arguments], stdout=full, stderr=subprocess.PIPE, timeout=120, check=False)
            self.assertEqual(result.returncode, 1, arguments)
            self.assertIn(b"standard output: cannot be written", result.stderr)
        for close in (">&-", "2>&-", ">&- 2>&-"):
            result = subprocess.run(["sh", "-c", f"exec '{LILY}' info --model /nowhere {close}"], timeout=120, check=False)
            self.assertEqual(result.returncode, 1, close)

    def test_failures_show_in_the_exit_code(self):
        self.assertEqual(self.run_lily("/nonsense\n").returncode, 1)
        self.assertEqual(self.run_lily("").returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
