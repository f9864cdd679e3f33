"""The watchdog speaks when updates stop, not before, and lets Ctrl-C end what never ends."""

import logging
import signal
import subprocess
import sys
import threading
import time

import pytest

from mcfo.learning.progress import Silent
from mcfo.learning.watchdog import Watchdog

RESUME = "Resume with --resume."


class Notes(Silent):
    """Remembers what it was told."""

    def __init__(self):
        self.texts = []

    def notice(self, text):
        self.texts.append(text)


def wait_for(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_a_slow_update_is_reported_once_and_goes_on():
    notes = Notes()

    def update(seconds):
        time.sleep(seconds)
        return "updated"

    with Watchdog(notes, RESUME, seconds=0.3) as watchdog:
        assert watchdog.watch(0, update, 0.0) == "updated"
        assert watchdog.watch(10, update, 1.0) == "updated"
    (text,) = notes.texts
    assert text.startswith("No update for 0 s: update 10 was the last")
    assert "So it waits" in text
    assert text.endswith(RESUME)


def test_a_busy_update_is_told_from_one_that_waits():
    notes = Notes()

    def update(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not notes.texts:
            pass

    with Watchdog(notes, RESUME, seconds=0.5) as watchdog:
        watchdog.watch(0, update, 0.0)
        watchdog.watch(10, update, 20.0)
    assert "So it computes" in notes.texts[0]


def test_compiling_is_not_counted():
    notes = Notes()
    with Watchdog(notes, RESUME, seconds=0.2) as watchdog:
        watchdog.watch(0, time.sleep, 0.6)  # the first call of its kind
        watchdog.watch(10, lambda: time.sleep(0.6))  # another kind, such as the first evaluation
        time.sleep(0.6)  # what is not watched
    assert not notes.texts


@pytest.mark.ci
def test_updates_that_have_always_been_slow_are_not_stalled():
    notes = Notes()
    with Watchdog(notes, RESUME, seconds=0.5) as watchdog:
        for seconds in (0.0, 0.45, 0.9):
            watchdog.watch(0, time.sleep, seconds)
        assert not notes.texts
        watchdog.watch(0, time.sleep, 3.2)
    assert len(notes.texts) == 1


def test_a_silent_run_logs_it(caplog):
    with caplog.at_level(logging.WARNING, logger="mcfo"):
        Silent().notice("No update")
    assert caplog.messages == ["No update"]


def test_threads_signals_and_errors_are_as_before():
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    threads = threading.active_count()
    with pytest.raises(ZeroDivisionError), Watchdog(Notes(), RESUME) as watchdog:
        watchdog.watch(0, lambda: 1 / 0)
    assert threading.active_count() == threads
    assert signal.set_wakeup_fd(before) == before


def test_it_works_in_another_thread():
    notes = Notes()

    def run():
        with Watchdog(notes, RESUME, seconds=0.2) as watchdog:
            watchdog.watch(0, time.sleep, 0.0)
            watchdog.watch(1, time.sleep, 0.6)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(notes.texts) == 1


HEED_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
"""A process that is started in the background ignores Ctrl-C, and so do those that it starts."""


def start(program, **pipes):
    """A Python process that Ctrl-C reaches."""
    command = [sys.executable, "-c", HEED_INTERRUPTS + program]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **pipes)


BLOCKED = """
import ctypes, sys, time
from mcfo.learning.progress import ProgressBar
from mcfo.learning.watchdog import Watchdog

def update(blocks):
    if blocks:
        # A mutex that this thread holds already: no signal ends that wait, as none ends that of XLA's threads.
        mutex = ctypes.create_string_buffer(256)
        libc = ctypes.CDLL(None)
        libc.pthread_mutex_lock(mutex)
        print("blocked", flush=True)
        libc.pthread_mutex_lock(mutex)

try:
    with ProgressBar() as listener, Watchdog(listener, "Resume with --resume.", seconds=0.5, grace=0.5) as watchdog:
        listener.begin(100, 0, 1)
        watchdog.watch(0, update, {first})
        watchdog.watch(10, update, True)
finally:
    print("unwound", flush=True)
"""


@pytest.mark.ci
@pytest.mark.parametrize("first", [False, True], ids=["later", "first"])
def test_interrupt_while_blocked(first):
    with start(BLOCKED.format(first=first), stderr=subprocess.PIPE) as process:
        try:
            while (line := process.stdout.readline()).strip() != "blocked":
                assert line, process.stderr.read()
            time.sleep(2.0)
            assert process.poll() is None  # it never ends a run by itself
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "mcfo: Interrupted in a computation that did not end" in errors
    assert "Resume with --resume." in errors
    assert "unwound" not in output
    assert ("No update for" in " ".join(output.split())) == (not first)


HEALTHY = """
import time
from mcfo import interrupts
from mcfo.learning.progress import Silent
from mcfo.learning.watchdog import Watchdog

def update(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass

try:
    with Watchdog(Silent(), "Resume with --resume.", seconds=60.0, grace=20.0) as watchdog:
        print("running", flush=True)
        while True:
            watchdog.watch(0, update, 0.3)
            print("updated", flush=True)
            interrupts.check()
except KeyboardInterrupt:
    print("unwound", flush=True)
    raise SystemExit(3)
"""


def test_interrupt_of_a_healthy_run_is_an_exception_between_updates():
    with start(HEALTHY) as process:
        try:
            assert process.stdout.readline().strip() == "running"
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 3
    assert output.split()[-2:] == ["updated", "unwound"]
