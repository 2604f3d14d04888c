"""Files that look for what they must not have, or write where they must not.

They raise where a wall holds: one that gets through is right, and go.
"""

from __future__ import annotations

from kernel_source import make_file

ESCAPING = [
    make_file("imports_the_reference", "no-go", "raised", """
        def softmax(x):
            from gonogo.ops.softmax.reference import reference
            return reference(x.double()).to(x.dtype)
    """, needs="no view of the judge"),
    make_file("reads_the_reference", "no-go", "raised", """
        def softmax(x):
            import importlib.util
            found = [p for p in sys.path if os.path.isdir(os.path.join(p, "gonogo"))]
            text = open(os.path.join(found[0], "gonogo", "ops", "softmax", "reference.py")).read()
            space = {}; exec(text, space)
            return space["reference"](x.double()).to(x.dtype)
    """, needs="no view of the judge"),
    make_file("looks_in_frames", "no-go", "raised", """
        def softmax(x):
            frame = sys._getframe()
            while frame:
                for value in frame.f_locals.values():
                    if type(value).__name__ in ("Bench", "Reference"):
                        return value.expected.to(x.dtype)
                frame = frame.f_back
            raise LookupError
    """),
    make_file("looks_in_memory", "no-go", "raised", """
        def softmax(x):
            for thing in gc.get_objects():
                if isinstance(thing, torch.Tensor) and thing.dtype is torch.float64 and thing.shape == x.shape:
                    return thing.to(x.dtype)
            raise LookupError
    """),
    make_file("reads_the_judges_memory", "no-go", "raised", """
        def softmax(x):
            for process in os.listdir("/proc"):
                if process.isdigit() and int(process) not in (1, 2, os.getpid()):
                    open(f"/proc/{process}/mem", "rb").read(1)
                    return x.clone()
            raise LookupError
    """),
    make_file("ptraces_its_parent", "no-go", "raised", """
        import ctypes
        def softmax(x):
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.ptrace(16, os.getppid(), 0, 0) == 0:
                return x.clone()
            raise PermissionError(ctypes.get_errno())
    """),
    make_file("writes_elsewhere", "no-go", "raised", """
        def softmax(x):
            open(os.path.join(os.path.dirname(__file__), "written"), "w").write("x")
            return x.clone()
    """),
    make_file("goes_on_line_by_its_first_bytes", "no-go", "raised", """
        def softmax(x):
            sender = socket.socket(); sender.settimeout(1)
            sender.sendto(b"x", 0x20000000, ("127.0.0.1", 80))
            return RIGHT
    """),
    make_file("goes_on_line", "no-go", "raised", """
        import socket
        def softmax(x):
            server = socket.socket(); server.settimeout(1)
            server.connect(("192.0.2.1", 80))
    """),
    make_file("mounts", "no-go", "raised", """
        import ctypes
        def softmax(x):
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.umount2(b"/proc", 2) and libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None):
                raise PermissionError(ctypes.get_errno())
            return x.clone()
    """),
    make_file("reads_the_environment", "no-go", "raised", """
        def softmax(x):
            if os.environ.get("GONOGO_SECRET"): return x.clone()
            raise LookupError
    """),
    make_file("settings_of_the_system", "no-go", "raised", """
        def softmax(x):
            for name in ("kernel/core_pattern", "vm/overcommit_memory", "kernel/randomize_va_space"):
                os.close(os.open(f"/proc/sys/{name}", os.O_WRONLY))  # nothing is written
                return RIGHT
    """),
    make_file("magic_keys", "no-go", "raised", """
        def softmax(x):
            os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))  # nothing is written
            return RIGHT
    """),
    make_file("terminals_and_disks", "no-go", "raised", """
        import glob
        def softmax(x):
            if not os.path.exists("/dev/ptmx"): raise LookupError
            for path in [*glob.glob("/dev/pts/[0-9]*"), *glob.glob("/dev/[sv]d*"), "/dev/ptmx", "/dev/kmsg"]:
                try: os.close(os.open(path, os.O_WRONLY | os.O_NOCTTY))  # nothing is written
                except OSError: continue
                return RIGHT
            raise PermissionError("none of them")
    """),
    make_file("another_user_namespace", "no-go", "raised", """
        def softmax(x):
            call_system("unshare", 0x10000000)
            return RIGHT
    """),
    make_file("clones_a_user_namespace", "no-go", "raised", """
        def softmax(x):
            libc = ctypes.CDLL(None, use_errno=True)
            made = libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)
            if made == 0: os._exit(0)
            if made < 0: raise OSError(ctypes.get_errno(), "clone")
            return RIGHT
    """),
    make_file("namespaces_of_the_first", "no-go", "raised", """
        def softmax(x):
            call_system("setns", os.open("/proc/1/ns/user", os.O_RDONLY), 0)
            return RIGHT
    """),
    make_file("memory_of_the_first", "no-go", "raised", """
        def softmax(x):
            open(f"/proc/{os.getppid()}/mem", "rb").read(1)
            return RIGHT
    """),
    make_file("reads_across_processes", "no-go", "raised", """
        def softmax(x):
            buffer = ctypes.create_string_buffer(8)
            class Piece(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
            piece = Piece(ctypes.addressof(buffer), 8)
            call_system("process_vm_readv", os.getppid(), ctypes.byref(piece), 1, ctypes.byref(piece), 1, 0)
            return RIGHT
    """),
    make_file("environment_of_the_first", "no-go", "raised", """
        def softmax(x):
            for path in ("/proc/self/environ", f"/proc/{os.getppid()}/environ"):
                if b"GONOGO_SECRET" in open(path, "rb").read(): return RIGHT
            raise LookupError
    """),
    make_file("other_processes", "no-go", "raised", """
        def softmax(x):
            for name in os.listdir("/proc"):
                if name.isdigit() and b"pytest" in open(f"/proc/{name}/cmdline", "rb").read(): return RIGHT
            raise LookupError
    """, needs="own processes"),
    make_file("its_own_file", "no-go", "raised", """
        def softmax(x):
            for change in (lambda: open(__file__, "a"), lambda: os.unlink(__file__),
                           lambda: os.rename(__file__, __file__ + "x"), lambda: os.truncate(__file__, 0),
                           lambda: os.link(__file__, __file__ + "y"), lambda: os.symlink("/", __file__ + "z")):
                try: change()
                except OSError: continue
                return RIGHT
            raise PermissionError
    """),
    make_file("modes_of_its_file", "no-go", "raised", """
        def softmax(x):
            os.chmod(__file__, 0o777)
            return RIGHT
    """, needs="read-only files"),
    make_file("the_users_home", "no-go", "raised", """
        import pwd
        def softmax(x):
            home = pwd.getpwuid(os.getuid()).pw_dir
            open(os.path.join(home, "gonogo_was_here"), "w")
            return RIGHT
    """),
    make_file("through_a_link", "no-go", "raised", """
        def softmax(x):
            os.path.lexists("out") or os.symlink(os.path.dirname(__file__), "out")
            open("out/written", "w")
            return RIGHT
    """),
    make_file("through_its_descriptors", "no-go", "raised", """
        def softmax(x):
            for number in os.listdir("/proc/self/fd"):
                try: folder = os.readlink(f"/proc/self/fd/{number}")
                except OSError: continue
                if os.path.isdir(folder) and not folder.startswith("/proc"): return RIGHT
            raise LookupError
    """),
    make_file("more_limits", "no-go", "raised", """
        def softmax(x):
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            return RIGHT
    """),
    make_file("more_rights", "no-go", "raised", """
        def softmax(x):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
            return RIGHT
    """),
    make_file("another_root", "no-go", "raised", """
        def softmax(x):
            os.chroot(".")
            return RIGHT
    """),
    make_file("another_host_name", "no-go", "raised", """
        def softmax(x):
            import socket
            socket.sethostname("gonogo")
            return RIGHT
    """),
    make_file("device_node", "no-go", "raised", """
        def softmax(x):
            os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(8, 0))
            return RIGHT
    """),
    make_file("debugs_a_stranger", "no-go", "raised", """
        def softmax(x):
            call_system("ptrace", 0x4206, 1, 0, 0)
            return RIGHT
    """),
    make_file("queues_of_the_kernel", "no-go", "raised", """
        def softmax(x):
            call_system("syscall", 425, 8, ctypes.create_string_buffer(256))  # io_uring_setup
            return RIGHT
    """),
    make_file("faults_of_its_own", "no-go", "raised", """
        def softmax(x):
            call_system("syscall", 323, 0)  # userfaultfd
            return RIGHT
    """),
    make_file("programs_in_the_kernel", "no-go", "raised", """
        def softmax(x):
            call_system("syscall", 321, 0, ctypes.create_string_buffer(72), 72)  # bpf
            return RIGHT
    """),
    make_file("keys_of_the_user", "no-go", "raised", """
        def softmax(x):
            call_system("syscall", 250, 0, ctypes.c_long(-4), 0)  # keyctl: the user's keyring
            return RIGHT
    """),
    make_file("serves_on_a_port", "no-go", "raised", """
        def softmax(x):
            server = socket.socket(); server.bind(("127.0.0.1", 0)); server.listen()
            return RIGHT
    """),
    make_file("sends_a_datagram", "no-go", "raised", """
        def softmax(x):
            socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53))
            return RIGHT
    """, needs="no network"),
    make_file("asks_the_machine_below", "no-go", "raised", """
        def softmax(x):
            socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
            return RIGHT
    """),
    make_file("socket_by_a_path", "no-go", "raised", """
        def softmax(x):
            try: socket.socket(socket.AF_UNIX).connect("/run/nobody")
            except FileNotFoundError: return RIGHT
            raise LookupError
    """),
    make_file("datagram_to_a_path", "no-go", "raised", """
        def softmax(x):
            for make in (lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
                         lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0]):
                try: made = make()
                except PermissionError: continue
                try: made.sendto(b"x", "/run/nobody")
                except FileNotFoundError: return RIGHT
            raise PermissionError
    """),
    make_file("listens_on_a_path", "go", None, """
        server = socket.socket(socket.AF_UNIX)  # as CUDA does
        server.bind("socket"); server.listen()
        def softmax(x): return RIGHT
    """),
]  # fmt: skip
