"""Kernels that begin with other people's libraries imported: a process imports them once, and each
notebook's kernel is forked from it.

    python book/kernels.py      is that process: it reads what a kernel is started with, a line for
    each, and has one at a time

Every notebook still has a process of its own, in which nothing of capslit was imported; only two
seconds of importing are not spent again.
"""

import builtins
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import warnings

from jupyter_client import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner

# Not what acts when it is imported, nor what capslit looks for
LIBRARIES = """
    ipykernel.kernelapp ipykernel.zmqshell matplotlib.pyplot array_api_compat.numpy fastcore.test
    scipy.fft scipy.io scipy.optimize scipy.stats sklearn.cluster sklearn.datasets
    sklearn.linear_model sklearn.model_selection sklearn.pipeline sympy threadpoolctl
""".split()
OURS = threading.local()  # each thread has its process


class Notebook:
    """What `get_ipython()` says while libraries are imported: whoever asks is in a notebook."""

    kernel = None


def become_kernel(argv, env, cwd):
    """Go on as `python -m ipykernel_launcher …` does that is started in this folder and
    environment.
    """
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.modules["numpy"].random.seed()
    sys.path[0], sys.argv = cwd, argv
    runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)


def serve():
    """Import the libraries; answer each line with the number of a new process, and with its status
    when it has ended.
    """
    # as ipykernel does
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # a kernel ends when this process does
    # pandas asks, when it is imported, how wide its tables may be
    builtins.get_ipython = lambda: Notebook
    with warnings.catch_warnings():
        # these would be seen in a notebook, too, and be mistakes there
        for kind in (UserWarning, FutureWarning, RuntimeWarning, SyntaxWarning):
            warnings.simplefilter("error", kind)
        for name in LIBRARIES:
            importlib.import_module(name)
    del builtins.get_ipython
    gc.freeze()
    while line := sys.stdin.buffer.raw.readline():
        if not (kernel := os.fork()):
            return become_kernel(**json.loads(line))
        os.write(0, b"%d\n" % kernel)
        while (ended := os.waitpid(kernel, os.WNOHANG)) == (0, 0):
            if select.select([0], [], [], 0.05)[0]:  # nobody waits for it any more
                os.killpg(kernel, signal.SIGKILL)
        os.write(0, b"%d\n" % os.waitstatus_to_exitcode(ended[1]))


def origin(python, env):
    """The process of this thread from which its kernels are forked, and the line to it; the last
    kernel has ended.
    """
    settings = {
        name: value
        for name, value in env.items()
        if name.startswith("PYTHON") or name.endswith("_NUM_THREADS")
    }  # what importing depends on
    if getattr(OURS, "settings", None) != (python, settings):
        here, there = socket.socketpair()
        with there:
            OURS.process = subprocess.Popen(
                [*python, __file__], env=env, stdin=there, start_new_session=True
            )
        OURS.line, OURS.settings, OURS.kernel = here, (python, settings), None
    if OURS.kernel:
        OURS.kernel.wait()
    return OURS.process, OURS.line


class Forked:
    """A kernel's process, as its manager knows it: what of `subprocess.Popen` it asks for."""

    stdin = stdout = stderr = returncode = None

    def __init__(self, cmd, env, cwd):
        at = cmd.index("-m")
        process, self.line = origin(cmd[:at], env)
        start = {
            "argv": cmd[at + 1 :],
            "env": env | {"JPY_PARENT_PID": str(process.pid)},
            "cwd": str(cwd),
        }
        self.line.sendall(json.dumps(start).encode() + b"\n")
        self.pid, OURS.kernel = self.answer(), self

    def answer(self):
        return int(self.line.makefile("rb", buffering=0).readline())

    def wait(self):
        if self.returncode is None:
            self.returncode = self.answer()
        return self.returncode

    def poll(self):
        return (
            self.wait()
            if self.returncode is not None or select.select([self.line], [], [], 0)[0]
            else None
        )

    def send_signal(self, number):
        os.kill(self.pid, number)


class ForkedProvisioner(LocalProvisioner):
    """Starts kernels by forking."""

    async def launch_kernel(self, cmd, env, cwd, **_):
        self.process = Forked(cmd, env, cwd)
        self.pid = self.pgid = self.process.pid
        self.cwd = cwd
        return self.connection_info


class ForkedKernels(AsyncKernelManager):
    """What starts a kernel for nbclient."""

    def __init__(self, **options):
        super().__init__(**options)
        self.provisioner = ForkedProvisioner(
            parent=self, kernel_spec=self.kernel_spec, kernel_id=""
        )


MANAGER = (
    ForkedKernels if sys.platform == "linux" else AsyncKernelManager
)  # elsewhere a process with libraries in it may not be forked

if __name__ == "__main__":
    serve()
