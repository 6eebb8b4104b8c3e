"""Classes and programs that the launch tests run; imported by worker processes, and run as a driver of its own.

python staged.py PROGRAM PROJECT     launches it as trial "staged", prints a line when its workers are up, waits
"""

from __future__ import annotations

import logging
import os
import random
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from ludus import errors, launch
from ludus.program import Handle, Program, RestartPolicy
from ludus.workers.register import register
from ludus.workers.worker import Worker


class Echo:
    """A service: says who answered."""

    def __init__(self, greeting: str = "hello") -> None:
        self.greeting = greeting

    @register
    def echo(self, value: Any) -> dict[str, Any]:
        return {"value": value, "greeting": self.greeting, "pid": os.getpid()}

    @register
    def block(self, seconds: float) -> None:
        time.sleep(seconds)


class Seeds:
    """Draws from the generators that all code of a process shares."""

    @register
    def draw(self) -> list[float]:
        return [random.random(), float(np.random.random()), os.urandom(4)[0] + random.random()]


class Warner(Worker):
    """Warns, as its environments would, a hundred times the same; leaves a result."""

    def _poll(self) -> int:
        log = logging.getLogger("ludus.envs.failures")
        for _ in range(100):
            log.warning("it raised (seed 7, step 12) in process %d", os.getpid())
        logging.getLogger("somebody.else").warning("not ours")
        self.finish({"score": 1.5})
        return 1


class Caller:
    """Calls the service it is given a number of times and writes down what it got."""

    def __init__(self, services: dict[str, Any], path: str, *, num_calls: int = 5) -> None:
        self.service = services["echo"]
        self.path = path
        self.num_calls = num_calls

    def run(self) -> None:
        answers = [self.service.echo(n)["value"] for n in range(self.num_calls)]
        Path(self.path).write_text(repr(answers))


class Forever:
    """Calls for ever; an outcome that is not known is asked for again."""

    def __init__(self, service: Any) -> None:
        self.service = service
        self.num_answers = 0

    @register
    def count(self) -> int:
        return self.num_answers

    def run(self) -> None:
        while True:
            try:
                self.service.echo(self.num_answers)
                self.num_answers += 1
            except errors.RpcError:
                time.sleep(0.01)
            time.sleep(0.002)


class Crasher:
    def __init__(self, *, after_s: float = 0.0) -> None:
        self.after_s = after_s

    def run(self) -> None:
        sys.stdout.write("just before the crash\n")
        time.sleep(self.after_s)
        raise ValueError("no reward for you")


class CrashesOnce:
    def __init__(self, flag: str) -> None:
        self.flag = Path(flag)

    def run(self) -> None:
        if not self.flag.exists():
            self.flag.touch()
            raise ValueError("only this once")


class Refuses:
    """Cannot even be constructed."""

    def __init__(self) -> None:
        raise RuntimeError("no GPU here")

    def run(self) -> None: ...


class Counter(Worker):
    idle_s = 0.01

    def _configure(self, config: Any) -> None:
        self.step = config.get("step", 1)
        self.total = 0

    def _poll(self) -> int:
        self.total += self.step
        return 0

    def _stats(self) -> dict[str, Any]:
        return {"total": self.total, "step": self.step}


class Polite(Worker):
    """Writes down that it was let go in good order."""

    def __init__(self, server: Any, path: str) -> None:
        super().__init__(server)
        self.path = path

    def _poll(self) -> int:
        return 0

    def _exit(self) -> None:
        Path(self.path, self.server.worker_name.replace("/", "-")).write_text(self._exit_asked or "")


class Deaf(Worker):
    """Never comes back from its poll, in one way or another."""

    def __init__(self, server: Any, how: str, service: Any = None) -> None:
        super().__init__(server)
        self.how = how
        self.service = service

    def _poll(self) -> int:
        match self.how:
            case "sleep":
                time.sleep(1000)
            case "spin":
                while True:
                    pass
            case "call":
                self.service.block(1000.0)
            case "hold":  # C code that never gives the interpreter up
                sum(range(10**15))
        return 0


class Hangs(Worker):
    """Its first life gets to work and then never comes back from a poll; the next ones are done at once."""

    def __init__(self, server: Any, flag: str) -> None:
        super().__init__(server)
        self.flag = Path(flag)

    def _poll(self) -> int:
        if self.flag.exists():
            self.finish()
        elif self._num_polls > 100:
            self.flag.touch()
            threading.Event().wait()
        return 1


class Vanishes(Worker):
    """Ends its process in its first poll, as a library might that calls exit()."""

    def _poll(self) -> int:
        sys.stdout.write("about to vanish\n")
        os._exit(7)


class DiskFull(Worker):
    """Cannot write to any file: a limit of the kernel's does as a full disk would."""

    def _poll(self) -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        sys.stdout.write("this line is lost, and nobody fails for it\n")
        with tempfile.TemporaryFile() as file:
            file.write(b"too much")
        return 1


class Parent:
    """Starts a process of its own."""

    def run(self) -> None:
        os.system("sleep 987654 &")
        threading.Event().wait()


def echo_program(path: str) -> Program:
    program = Program("staged")
    echo = program.add("echo", Echo, "hi", replicas=2)
    program.add("caller", Caller, {"echo": echo}, path)
    return program


def deaf_program() -> Program:
    program = Program("staged")
    echo = program.add("echo", Echo)
    for how in ("sleep", "spin", "call", "hold"):
        program.add(how, Deaf, how, echo)
    program.add("parent", Parent)
    return program


def polite_program(project: str) -> Program:
    program = Program("staged")
    program.add("polite", Polite, project, replicas=2)
    program.add("echo", Echo)
    return program


def stubborn_program() -> Program:
    program = Program("staged")
    program.add("sleep", Deaf, "sleep")
    return program


def crashing_program(**policy: Any) -> Program:
    program = Program("staged")
    program.add("crasher", Crasher, restarts=RestartPolicy(**policy))
    program.add("echo", Echo)
    return program


def forever_program(**echo: Any) -> tuple[Program, Handle]:
    program = Program("staged")
    program.add("forever", Forever, program.add("echo", Echo, **echo))
    return program, program.handle("forever")


def apart(project: str, out: str) -> None:
    """The echoes on a Ray cluster of their own, whose address is printed."""
    with launch.ray(echo_program(out), project=project) as run:
        run.wait(60)
        import ray

        sys.stdout.write(ray.get_runtime_context().gcs_address + "\n")


def main(which: str, project: str, cluster: str = "") -> None:
    programs = {
        "deaf": deaf_program,
        "polite": lambda: polite_program(project),
        "stubborn": stubborn_program,
        "crashing": lambda: crashing_program(max_restarts=1, backoff_s=0.05),
    }
    program = programs[which]()
    if cluster:
        made = launch.ray(program, project=project, trial="staged", address=cluster)
    else:
        made = launch.local(program, project=project, trial="staged")
    with made as run:
        panel = run.panel()
        names = [worker for node in program.nodes for worker in node.worker_names]
        while which != "crashing" and sorted(panel.auto_connect()) != sorted(names):
            time.sleep(0.05)
        time.sleep(0.3)
        sys.stdout.write(" ".join(str(record.pid) for record in run.workers()) + "\n")
        sys.stdout.flush()
        try:
            run.wait()
        finally:
            if which == "stubborn":
                run.stop(grace_s=300.0)


if __name__ == "__main__":
    if sys.argv[1] == "apart":
        apart(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
