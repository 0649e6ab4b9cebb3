"""Get ready for torch to be imported, then run the sitecustomize that this file hides.

Copied into a run folder as sitecustomize.py and as usercustomize.py, with the constants filled in. Python's
``site`` imports it at the start of every interpreter whose PYTHONPATH names that folder. It leaves one entry
in sys.meta_path, one attribute of sys and one line in the run folder; sys.path and sys.modules stay as they
would have been without it. It must parse on Python 2.7, where it only chains.
"""

if True:  # pragma: no cover - coverage may trace this file from its own .pth, and must not count it
    import os
    import sys

    DATA = ""  # filled in: the directory beside this file that holds the recorder; without it, only chain
    RUN_FOLDER = ""  # filled in: the run folder, as the launcher saw it
    WAS_UNSET = False  # filled in: PYTHONPATH was unset or empty when the command was started
    HAS_OVERLAY = False  # filled in: some files of the program are to run with edited source

    HOOK = os.path.dirname(os.path.abspath(__file__))
    HINTS = (
        b"pass pw pswd secret cred key token auth bearer cookie sig :// sk- hf_ nvapi- r8_ npm_ pypi- wandb_ ghp_ gho_ "
        b"ghu_ ghs_ ghr_ github_ glpat- xox aiza ya29. eyj akia asia"
    ).split()
    ONLY_HEX = b" " * 48 + b"0123456789" + b" " * 39 + b"abcdef" + b" " * 153
    """A table for translate: what cannot be part of a key of W&B's becomes a blank."""

    class Finder(object):
        """Finds nothing itself: loads the recorder's finder when torch is first searched for."""

        @staticmethod
        def find_spec(name, path=None, target=None):
            """Return what the recorder's finder has for torch, and None for all else."""
            if name != "torch":
                return None
            on_import = quietly(bring_on_import)
            return on_import and on_import.Finder.find_spec(name, path, target)

    def quietly(function, *arguments):
        """Return what the function returns; what it raises becomes a line in the run folder."""
        try:
            return function(*arguments)
        except Exception as error:  # noqa: BLE001 - the user's program must start, whatever is wrong with us
            if function is not note:
                quietly(note, "failed", "%s: %s" % (type(error).__name__, error))

    def inject():
        """Install the finder and write the start record, once per process."""
        off = os.environ.get("PERFWRAP_OFF") == "1" or os.environ.get("PERFWRAP_DISABLE") == "1"
        if off or not DATA or hasattr(sys, "_perfwrap") or sys.version_info < (3, 8):
            return
        in_main = getattr(sys.modules["_thread"], "_is_main_interpreter", None)
        if sys.implementation.name != "cpython" or (in_main and not in_main()):
            return
        sys._perfwrap = os.getpid()
        sys.meta_path.insert(0, Finder)
        quietly(note, "start")
        if sys.dont_write_bytecode and sys.pycache_prefix is None and VECTOR != "attached":
            if not os.path.exists(__spec__.cached):
                quietly(byte_code, __spec__.loader, __name__)
        if HAS_OVERLAY:
            quietly(load("overlay").install, os.path.join(HOOK, DATA), note, run_folder)
        if "torch" in sys.modules:
            bring_on_import().start()

    def byte_code(loader, name):
        """Return the code of a file of ours, and keep it beside the file, also where the user wants none written.

        Compiling such a file is most of the recorder's cost in a process without torch.
        """
        is_elsewhere = sys.pycache_prefix is not None or not os.access(HOOK, os.W_OK)
        kept, sys.dont_write_bytecode = sys.dont_write_bytecode, is_elsewhere
        try:
            return loader.get_code(name)
        finally:
            sys.dont_write_bytecode = kept

    def bring_on_import():
        """Return the recorder's on_import module, whose finder takes the place of ours."""
        folder = os.path.join(HOOK, DATA)
        lent = {"data": folder, "run_folder": run_folder(), "load": load, "note": note, "quietly": quietly}
        on_import = load("on_import")
        on_import.take_over(Finder, **lent)
        return on_import

    def load(stem):
        """Return a module of the recorder, loaded without the help of the import system."""
        name = "perfwrap_recorder." + stem
        if name not in sys.modules:
            with open(os.path.join(HOOK, DATA, "perfwrap_recorder", stem + ".py"), "rb") as source:
                code = compile(source.read(), "<perfwrap:%s>" % stem, "exec")
            module = type(sys)(name)
            exec(code, module.__dict__)  # nosec B102 # a file of ours in a folder of ours
            # Two threads may be here at once: running such a module has no effect, and one of the two wins.
            sys.modules.setdefault(name, module)
        return sys.modules[name]

    def run_folder():
        """Return the run folder, also where it is mounted under another name."""
        return RUN_FOLDER if os.path.isdir(RUN_FOLDER) else os.path.dirname(HOOK)

    def note(event, detail=None):
        """Append one line about this process to the run folder: START_FIELDS of run_folder.py."""
        signal = sys.modules["_signal"]
        if signal.getsignal(signal.SIGXFSZ) != signal.SIG_IGN:
            return  # as Python leaves it, a limit to the size of files is an error; it must not be a signal
        ticks = read("/proc/self/stat").rpartition(b")")[2].split()[19].decode()
        argv = read("/proc/self/cmdline") if detail is None else detail.encode("utf-8", "replace")
        argv = quietly(without_secrets, argv) or b""
        argv = argv[:3000].rstrip(b"\0").replace(b"\t", b" ").replace(b"\n", b" ").replace(b"\0", b"\x1f")
        now = sys.modules["time"].monotonic_ns()
        fields = (event, os.getpid(), os.getppid(), ticks, now, "%d.%d.%d" % sys.version_info[:3], VECTOR)
        line = "\t".join(map(str, fields)).encode() + b"\t" + argv + b"\n"
        letters = [letter if letter.isalnum() or letter in "._" else " " for letter in os.uname()[1]]
        log = os.path.join(run_folder(), "starts", "_".join("".join(letters).split()) + ".log")
        # One write to an O_APPEND file: the lines of processes that start at once do not mix.
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def without_secrets(words):
        """Return a command line, its words joined by zeros, with what looks like a secret masked."""
        small = words.lower()
        runs = small.translate(ONLY_HEX).split() if len(small) >= 40 else ()
        if not any(hint in small for hint in HINTS) and not any(len(run) >= 40 for run in runs):
            return words  # nearly always: loading the masking code takes as long as everything else here
        masked_words = bring_redaction()["masked_words"]
        return "\0".join(masked_words(words.decode("utf-8", "replace").split("\0"))).encode(
            "utf-8", "replace"
        )

    def bring_redaction():
        """Return the names of the recorder's module that masks secrets."""
        name, scope = "perfwrap_recorder.redaction", {}
        path = os.path.join(HOOK, DATA, "perfwrap_recorder", "redaction.py")
        loader = sys.modules["_frozen_importlib_external"].SourceFileLoader(name, path)
        exec(byte_code(loader, name), scope)  # nosec B102 # a file of ours in a folder of ours
        return scope

    def read(path):
        """Return the beginning of a file of /proc, without the machinery of open()."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return os.read(descriptor, 4096)
        finally:
            os.close(descriptor)

    def is_ours(entry):
        """Return whether an element of a path is this directory: also with a slash at its end, or by a link."""
        try:
            return entry == HOOK or bool(entry) and os.path.samefile(entry, HOOK)
        except (OSError, TypeError, ValueError):
            return False

    def leave_path():
        """Remove this directory from sys.path; return how this file was reached.

        A program that writes ``PYTHONPATH=$PYTHONPATH:/x`` where it was unset gets an empty element, which
        names the current directory, and may rely on it. With our directory in it there is none, so its effect
        is restored here.
        """
        elements = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        vector = __name__
        for index in reversed([index for index, entry in enumerate(sys.path) if is_ours(entry)]):
            del sys.path[index]
            if WAS_UNSET and not all(map(is_ours, elements)):
                try:
                    current = os.getcwd()
                except OSError:
                    continue  # it is gone
                if current not in sys.path:
                    sys.path.insert(index, current)
                    vector += "+cwd"
        return vector

    def asked_by_site():
        """Return whether site itself imports this file, and not another tool's sitecustomize.

        Our frames, also those of another run, are recognised by a name in their code: a tool that uses the old
        ``load_module`` has this file run in its own module's namespace.
        """
        frame = sys._getframe(1)
        while frame and ("asked_by_site" in frame.f_code.co_names or is_importlib(frame.f_code)):
            frame = frame.f_back
        return not frame or (frame.f_globals.get("__name__"), frame.f_code.co_name[:4]) == ("site", "exec")

    def is_importlib(code):
        """Return whether the code is part of the import system."""
        return code.co_filename.startswith("<frozen importlib")

    def chain():
        """Import the module that this one hides; what it raises is between it and site."""
        myself = sys.modules.pop(__name__, None)
        try:
            __import__(__name__)
        except ImportError as error:
            # site expects this error when there is no such module; a tool that has found this file does not.
            if getattr(error, "name", None) != __name__ or asked_by_site():
                raise
            sys.modules[__name__] = myself

    VECTOR = __name__
    if VECTOR != "attached":  # which attached.py calls it: no module of site's, and it hides none
        try:
            VECTOR = quietly(leave_path) or __name__
            quietly(inject)
        finally:
            chain()
