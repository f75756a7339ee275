"""Fixtures of the server tests. The program under test: --lily PATH."""

import sys

import pytest

from lily_server import Server

sys.dont_write_bytecode = True


def pytest_addoption(parser):
    parser.addoption("--lily", required=True, help="the program under test")


@pytest.fixture(scope="session")
def lily(request):
    return request.config.getoption("--lily")


@pytest.fixture(scope="module")
def server(lily):
    """One for the tests of a file; tests that need other options start their own."""
    with Server(lily, "--ctx", 4096, "--keep-alive-seconds", 1) as running:
        yield running
        assert running.process.poll() is None, "the server has died: " + "".join(running.log)
