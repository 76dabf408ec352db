"""Takes from this process what users' code has no need of: files, sockets, other processes.

By Landlock (Linux 5.13) and a seccomp filter, which need no privilege and can't be undone. What the
kernel does not offer is left out and said. Imports nothing that starts threads, since a filter
holds for the thread that sets it and those it starts.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
from collections.abc import Iterable
from pathlib import Path

_OPEN_FILES = 256
_NICE = 10
_WORST_SCORE = "1000"  # of the out-of-memory killer, which then takes this process first

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # how many bits each version of Landlock knows
_MOST_FS_RIGHTS = 16
_NET_VERSION, _SCOPE_VERSION = 4, 6
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ALWAYS_READ = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo"),
    *("/etc/ld.so.cache", "/etc/localtime", "/dev/urandom", "/dev/zero", "/proc/self"),
    *("/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"),
)
_NULL = "/dev/null"

# Calls by their numbers on x86-64 and on 64-bit ARM, where -1 says that there is none.
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_REFUSED = {
    "socket": (41, 198),
    "connect": (42, 203),
    "fork": (57, -1),
    "vfork": (58, -1),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "unshare": (272, 97),
    "setns": (308, 268),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "chmod": (90, -1),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, -1),
    "fchown": (93, 55),
    "lchown": (94, -1),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "utime": (132, -1),
    "utimes": (235, -1),
    "futimesat": (261, -1),
    "utimensat": (280, 88),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
}
_CLONE, _CLONE3, _PRLIMIT = (56, 220), (435, 435), (302, 261)
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000  # numbers from here on are a second table of the same calls on x86-64
_EPERM, _ENOSYS = 1, 38
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
# Opcodes of the filter's machine.
_LOAD, _EQUAL, _AT_LEAST, _BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENT_AT = 0, 4, 16

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def hide_from_others() -> None:
    """Keeps processes of the same user out of this one's memory, environment and open files.

    For the process that holds credentials, before it starts a worker.
    """
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def limit(memory_bytes: int) -> None:
    """Bounds memory, files and processor time of this process, which ends with its parent."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for what, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
    ):
        resource.setrlimit(what, (most, most))
    os.nice(_NICE)
    try:
        Path("/proc/self/oom_score_adj").write_text(_WORST_SCORE, encoding="ascii")
    except OSError:  # a kernel without it
        return


def close_off(readable: Iterable[str]) -> tuple[bool, bool]:
    """Leaves this process alone with files that it may read.

    Args:
        readable: files and folders, beside those of the system's libraries.

    Returns:
        Whether files are closed off, and whether calls are refused that reach other processes, the
        network or the machine.
    """
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False, False
    return _close_files(readable), _refuse_calls()


def _close_files(readable: Iterable[str]) -> bool:
    version = _libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return False
    rights = (1 << _FS_RIGHTS.get(version, _MOST_FS_RIGHTS)) - 1
    attributes = struct.pack("<Q", rights)
    if version >= _NET_VERSION:
        attributes += struct.pack("<Q", 0b11)  # no bind, no connect
    if version >= _SCOPE_VERSION:
        attributes += struct.pack("<Q", 0b11)  # no abstract sockets, no signals
    rules = _libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0)
    if rules < 0:
        return False
    try:
        for path in dict.fromkeys((*readable, *_ALWAYS_READ)):
            _allow(rules, path, _READ)
        _allow(rules, _NULL, _READ_FILE | _WRITE_FILE)
        return bool(_libc.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0)
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # it is not there: nothing to allow
        return
    try:
        if not Path(path).is_dir():
            rights &= ~_READ_DIR
        _libc.syscall(_LANDLOCK_ADD, rules, 1, struct.pack("<Qi", rights, place), 0)
    finally:
        os.close(place)


def _refuse_calls() -> bool:
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None:
        return False
    program = _program(*architecture)
    code = ctypes.create_string_buffer(program, len(program))
    filter_ = struct.pack("<H6xQ", len(program) // 8, ctypes.addressof(code))
    return bool(_libc.prctl(_PR_SET_SECCOMP, 2, filter_, 0, 0) == 0)


def _program(architecture: int, column: int) -> bytes:
    """The filter: 8 bytes an instruction, each refusal two instructions on from its test."""

    def refuse_if(test: int, value: int, errno: int = _EPERM) -> list[bytes]:
        return [_step(test, value, 0, 1), _step(_RETURN, _ERRNO | errno)]

    number = _step(_LOAD, _NUMBER_AT)
    argument = _step(_LOAD, _ARGUMENT_AT)
    steps = [
        _step(_LOAD, _ARCHITECTURE_AT),
        _step(_EQUAL, architecture, 1, 0),
        _step(_RETURN, _KILL),
        number,
        *refuse_if(_AT_LEAST, _X32),
    ]
    for numbers in _REFUSED.values():
        if numbers[column] >= 0:
            steps += refuse_if(_EQUAL, numbers[column])
    # glibc falls back to clone, whose flags can be seen here. A thread is no process.
    steps += refuse_if(_EQUAL, _CLONE3[column], _ENOSYS)
    steps += [
        _step(_EQUAL, _CLONE[column], 0, 4),
        argument,
        _step(_BITS, _CLONE_THREAD, 1, 0),
        _step(_RETURN, _ERRNO | _EPERM),
        _step(_RETURN, _ALLOW),
        _step(_EQUAL, _PRLIMIT[column], 0, 3),
        argument,
        _step(_EQUAL, 0, 1, 0),
        _step(_RETURN, _ERRNO | _EPERM),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(steps)


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("<HBBI", code, then, otherwise, value)
