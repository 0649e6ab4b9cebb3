"""Starts programs in copies of one Python that has imported PyTorch already: the import is most of a short test."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

SERVER = """
import gc, json, os, socket, sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
import torch, torch._dynamo, torch.utils.data, torch.multiprocessing
from multiprocessing import process

def run_script(path, arguments, folder):
    os.chdir(folder)
    process.ORIGINAL_DIR = folder  # where spawned processes begin
    sys.argv[:], sys.path[0] = [path, *arguments], os.path.dirname(path)
    main = ModuleType("__main__")
    main.__file__, main.__loader__ = path, SourceFileLoader("__main__", path)
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    try:
        exec(code, main.__dict__)
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__.tb_next)
        sys.exit(1)

def serve(connection):
    with connection:
        while True:
            request, streams, _, _ = socket.recv_fds(connection, 1 << 16, 2)
            if not request:
                return None
            child = os.fork()
            if child == 0:
                for number, stream in enumerate(streams, 1):
                    os.dup2(stream, number)
                    os.close(stream)
                return json.loads(request)
            for stream in streams:
                os.close(stream)
            connection.sendall(b"%d\\n" % child)
            connection.sendall(b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

gc.collect()
gc.freeze()  # else each copy visits, and thereby copies, all of these objects when it ends
request = serve(socket.socket(fileno=int(sys.argv[1])))
if request:
    run_script(*request)
"""
"""The program of the Python that is copied. A copy closes the connection before its script runs."""


class WarmPython:
    """One Python with PyTorch; each script runs in a fork of it, in a process that ends as any other."""

    def __init__(self) -> None:
        self._connection, other = socket.socketpair()
        with other:
            words = [sys.executable, "-c", SERVER, str(other.fileno())]
            self._server = subprocess.Popen(words, pass_fds=[other.fileno()], stdout=subprocess.DEVNULL)
        self._answers = self._connection.makefile("rb")

    def run(
        self, script: Path, *arguments: str, cwd: Path, timeout: float = 240
    ) -> subprocess.CompletedProcess[str]:
        """Run the script as ``python script arguments`` would, until its output ends."""
        pipes = [os.pipe(), os.pipe()]
        request = json.dumps([str(script), arguments, str(cwd)]).encode()
        socket.send_fds(self._connection, [request], [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)
        pid = int(self._answers.readline())
        outputs = ["", ""]
        readers = [
            threading.Thread(target=_read, args=(read, outputs, number), daemon=True)
            for number, (read, _) in enumerate(pipes)
        ]
        late = threading.Timer(timeout, os.kill, (pid, 9))
        for thread in (*readers, late):
            thread.start()
        returncode = int(self._answers.readline())
        late.cancel()
        for reader in readers:
            reader.join(timeout)
            assert not reader.is_alive(), "a process that the script left behind holds its output"
        return subprocess.CompletedProcess([sys.executable, str(script), *arguments], returncode, *outputs)

    def close(self) -> None:
        """End the Python."""
        self._answers.close()
        self._connection.close()
        self._server.wait(60)


def _read(descriptor: int, outputs: list[str], number: int) -> None:
    with open(descriptor, encoding="utf-8") as file:
        outputs[number] = file.read()
