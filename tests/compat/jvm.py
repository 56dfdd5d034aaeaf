"""Java on the jars of Apache RocketMQ: the command line of a JVM, our small programs, and `mqadmin`.

Rules kept here:
- The jars are where `make compat` puts them; nothing is fetched from here.
- The programs in `java/` are compiled when they have changed, into a folder beside the jars, by whoever of
  several workers needs them first.
- Every JVM gets a home folder of its own and logs there.
- One JVM serves many `mqadmin` commands: starting one costs more than the command.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

PEERS = Path(__file__).parents[2] / ".peers"
OLDEST = "5.3.3"
"""The release that everything is compared with."""
RELEASE = os.environ.get("COMPAT_RELEASE", OLDEST)
"""The release whose jars are used; `make compat` also runs a part of the tests with the newest one."""
JAVA_LIB = PEERS / ("apache" if RELEASE == OLDEST else f"apache-{RELEASE}") / "lib"
CLASSES = PEERS / "classes"
SOURCES = Path(__file__).parent / "java"
PROGRAM_SECONDS = 90.0

# What the servers need to reach inside the JDK from Java 17 on.
OPEN_MODULES = (
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)
# A JVM that lives for seconds is gone before the optimising compiler pays.
SHORT_LIFE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
QUICK_START = (*SHORT_LIFE, "-Xmx256m")

END_OF_COMMAND = "--- end of command ---"


class JavaError(Exception):
    """A Java program ended with an error; the message has its output."""


def java_command(
    main: str,
    *args: str,
    home: Path,
    props: Mapping[str, str] = {},
    options: Sequence[str] = QUICK_START,
) -> list[str]:
    """The command line that runs a main class of the jars, or of our programs, with its own home."""
    if not JAVA_LIB.is_dir():
        raise JavaError("the jars of Apache RocketMQ are missing: `make compat` fetches them")
    # SOURCES is there for the log configuration; RocketMQ takes it from the class path.
    class_path = os.pathsep.join((str(SOURCES), str(_compiled()), f"{JAVA_LIB}/*"))
    system = {"user.home": str(home), "rocketmq.home.dir": str(home), **props}
    return [
        "java",
        *options,
        *OPEN_MODULES,
        *(f"-D{key}={value}" for key, value in system.items()),
        "-cp",
        class_path,
        main,
        *args,
    ]


def java_environment(home: Path) -> dict[str, str]:
    """The environment of a JVM. Settings that would leak in from outside are left out."""
    kept = {key: value for key, value in os.environ.items() if key not in ("NAMESRV_ADDR", "JAVA_OPT")}
    return {**kept, "HOME": str(home), "ROCKETMQ_HOME": str(home)}


@functools.cache
def _compiled() -> Path:
    """The folder with the classes of our programs."""
    return compiled(sorted(SOURCES.glob("*.java")), JAVA_LIB)


def compiled(sources: Sequence[Path], lib: Path) -> Path:
    """The folder with the classes of these sources, compiled against these jars if they have changed."""
    digest = hashlib.sha256(str(lib).encode())
    for source in sources:
        digest.update(source.read_bytes())
    classes = CLASSES / digest.hexdigest()[:16]
    CLASSES.mkdir(exist_ok=True)
    with (CLASSES / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not classes.is_dir():
            _compile(sources, lib, classes)
    return classes


def _compile(sources: Sequence[Path], lib: Path, classes: Path) -> None:
    """Compile into a folder that is there only when everything is in it."""
    unfinished = Path(tempfile.mkdtemp(dir=CLASSES))
    command = ["javac", "-nowarn", "-proc:none", "-d", str(unfinished), "-cp", f"{lib}/*", *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(unfinished)
        raise JavaError(f"javac failed:\n{done.stdout}{done.stderr}")
    unfinished.rename(classes)


def run_java(
    source_file: str,
    *args: str,
    home: Path,
    props: Mapping[str, str] = {},
    timeout: float = PROGRAM_SECONDS,
) -> str:
    """Run one program of `java/` to its end and return what it printed."""
    home.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        java_command(Path(source_file).stem, *args, home=home, props=props),
        env=java_environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        raise JavaError(f"{source_file} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class JavaShell:
    """A JVM that runs commands: a line goes in, and lines come out up to END_OF_COMMAND."""

    program: str

    def __init__(self, home: Path) -> None:
        self.home = home
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "stderr.log").open("ab") as errors:
            self._process = subprocess.Popen(
                java_command(self.program, home=self.home),
                env=java_environment(self.home),
                cwd=self.home,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
            )
        return self

    def lines(self, *command: str) -> Iterator[str]:
        """Run a command; its output while it runs, line by line."""
        process = self._process
        assert process is not None, "not started"
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\t".join(command) + "\n")
        process.stdin.flush()
        printed = ""
        for printed in process.stdout:
            if printed.rstrip("\n") == END_OF_COMMAND:
                return
            yield printed
        log = (self.home / "stderr.log").read_text()
        raise JavaError(f"{' '.join(command)} ended the shell:\n{printed}{log}")

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.communicate()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class AdminShell(JavaShell):
    """`mqadmin` commands, for any number of clusters."""

    program = "AdminShell"

    def run(self, *args: str, namesrv: str) -> str:
        """What `mqadmin ARGS -n NAMESRV` prints, its errors included."""
        return "".join(self.lines(*args, "-n", namesrv))


def mqadmin(*args: str, namesrv: str, home: Path) -> str:
    """One `mqadmin` command in a JVM of its own."""
    with AdminShell(home) as shell:
        return shell.run(*args, namesrv=namesrv)
