"""Kernels that begin with what most chapters import: forks of one process that has imported it.

    python book/kernels.py      a kernel for each line, [arguments, environment, folder]

If a module warns when it is imported, forks would hide this from the chapters that import it.

Each has its own environment, folder and seeds. The package is not imported before, nor what the
package only uses where it is loaded (numba, PyTorch, Dask).
"""

import gc
import json
import os
import subprocess
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Lock

from jupyter_client.provisioning import LocalProvisioner

MODULES = (
    "ipykernel.kernelapp pandas scipy.stats sklearn.datasets sklearn.model_selection"
    " sklearn.linear_model sklearn.pipeline sklearn.decomposition sympy matplotlib.figure"
)
AVAILABLE = sys.platform == "linux"  # elsewhere libraries do not survive a fork
ENVIRONMENT = {
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",  # as in each kernel
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # only a process of one thread may fork
}


def serve():
    """Import, say what was warned of, then fork a kernel for each line."""
    with suppress(ValueError):
        sys.path.remove(str(Path(__file__).parent))
    warned, show = [], warnings.showwarning
    warnings.showwarning = lambda message, *_: warned.append(str(message))
    for name in MODULES.split():
        import_module(name)
    warnings.showwarning = show
    print(json.dumps(warned), flush=True)
    gc.freeze()
    for line in sys.stdin:
        try:
            pid = os.fork()
        except OSError as error:  # the machine has no room for another process
            print(error, flush=True)
            continue
        if not pid:
            return become_kernel(*json.loads(line))
        print(pid, flush=True)


def become_kernel(arguments, environ, folder):
    """Go on as `python -m ipykernel_launcher`, as if just begun."""
    os.setsid()
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    parent = f"--IPKernelApp.parent_handle={os.getppid()}"  # with which it ends
    sys.argv[1:] = [*arguments, parent]
    import_module("ipykernel.kernelapp").launch_new_instance()


class Server(subprocess.Popen):
    """The process that imports and forks; ends with this one."""

    def __init__(self, environ):
        super().__init__(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT | os.environ | environ,
            start_new_session=True,  # not interrupted by Ctrl+C
        )
        self.lock = Lock()
        self.warned = json.loads(self.stdout.readline() or "[]")  # by modules, when imported

    def fork(self, *request):
        """The process of a new kernel."""
        with self.lock:
            print(json.dumps(request), file=self.stdin, flush=True)
            answer = self.stdout.readline()
        if not answer.strip().isdigit():
            raise RuntimeError(f"no kernel could be started: {answer or 'the server has ended'}")
        return Process(int(answer))


class Process:
    """A process that is not a child of this one, as Jupyter handles it."""

    stdin = stdout = stderr = None

    def __init__(self, pid):
        self.pid = pid

    def poll(self):
        """None while it runs; a process that has ended is kept until the server ends."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return 0
        return 0 if state in "ZX" else None

    wait = poll

    def send_signal(self, number):
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Forked(LocalProvisioner):
    """Starts a kernel through a server."""

    async def launch_kernel(self, cmd, env, cwd, **options):
        self.process = self.server.fork(cmd[cmd.index("-f") :], env, str(cwd))
        self.pid = self.pgid = self.process.pid
        return self.connection_info


if __name__ == "__main__":
    serve()
