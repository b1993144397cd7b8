"""Runs a command that the kernel kills when the process that started this one ends, however it ends.

Run it by its path, as a script: `python -I -S _leash.py PARENT_PID COMMAND [ARGUMENT…]`. The parent cannot do
this between fork and exec, because no Python may run there in a process with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Become the command, tied to the life of the process `parent`, which started this one."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        sys.exit(f"leash: prctl(PR_SET_PDEATHSIG) failed: {os.strerror(error)}")
    # The parent may have ended before the kernel was asked to watch it.
    if os.getppid() != parent:
        sys.exit("leash: the parent process has already ended")
    # Python ignores SIGPIPE, and the command would inherit this.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
