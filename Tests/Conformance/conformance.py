#!/usr/bin/env python3
"""What a supervisor of one program must do, as black-box cases, pointed at guardian and at its peers.

    conformance.py [--peer NAME]… [--case PART]… [--bin DIR] [--probe FILE] [--jobs N] [--brief]

Each case starts a real process under a real supervisor and looks from outside: the probe program
tells what happens to it in a file. A peer that cannot express a case by its own documentation scores
"n/a", which is counted apart; one that can and does otherwise scores "fail". guardian must pass every
case: the exit status is 1 if it does not, whatever the peers do."""
import argparse, concurrent.futures, glob, os, pty, select, shutil, signal, subprocess, sys, tempfile, time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 20.0  # seconds; for an event that must come, on a slow and busy machine


class Missing(Exception):
    """The peer does not claim to do this, or this machine cannot ask: then with the reason."""


def until(condition, deadline=DEADLINE, step=0.005):
    """Waits for what can only be looked at; the value, or None when the deadline has passed."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            return None
        time.sleep(step)


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state != "Z"
    except OSError:
        return False


def zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return False


class Run:
    """One supervisor with one program."""

    def __init__(self, process, book, work):
        self.process, self.book, self.work = process, book, work

    def lines(self, first=None):
        try:
            lines = self.book.read_text().splitlines()
        except OSError:
            lines = []
        return [l.split() for l in lines if first is None or l.split()[:1] == [first]]

    def starts(self):
        return [(int(l[1]), float(l[2])) for l in self.lines("start")]

    def wait_starts(self, count=1, deadline=DEADLINE):
        return until(lambda: len(self.starts()) >= count and self.starts(), deadline)

    def wait_line(self, first, deadline=DEADLINE):
        return until(lambda: self.lines(first), deadline)

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, deadline=DEADLINE):
        try:
            return self.process.wait(deadline)
        except subprocess.TimeoutExpired:
            return None


class Peer:
    name = ""
    binary = ""
    wrapper = True  # runs a command once and takes over its exit status
    restarts = False

    def __init__(self, options):
        self.options = options

    def there(self):
        return shutil.which(self.binary) is not None

    def command(self, words, work, **wish):
        raise NotImplementedError

    def environment(self, work):
        return dict(os.environ)

    def start(self, probe_words, work, prepare=None, stderr=None, stdin=subprocess.DEVNULL, extra=None, **wish):
        book = work / "book"
        words = [str(self.options.probe), probe_words[0], str(book), *map(str, probe_words[1:])]
        out = stderr if stderr is not None else open(work / "stderr", "wb")
        process = subprocess.Popen(
            self.command(words, work, **wish), stdin=stdin, stdout=out, stderr=out, cwd=work,
            env=dict(self.environment(work), **(extra or {})), preexec_fn=prepare, restore_signals=prepare is None)
        if stderr is None:
            out.close()
        return Run(process, book, work)


class Guardian(Peer):
    name, binary, restarts = "guardian", "guardian", True

    def there(self):
        return (self.options.bin / "guardian").exists()

    def environment(self, work):
        return dict(os.environ, GUARDIAN_STATE_DIRECTORY=str(work / "state"),
                    GUARDIAN_RUNTIME_DIRECTORY=str(work / "run"))

    def command(self, words, work, restart=False, cap=None, stop_timeout=None, rewrite=None,
                window=None, delay=None, stable=None, group=False, log=None):
        flags = [f"--restart={'always' if restart else 'no'}"]
        if cap is not None:
            flags.append(f"--max-crashes={cap}")
        if window:
            flags.append(f"--crash-window={window}")
        if delay:
            flags.append(f"--restart-delay={delay}")
        if stable:
            flags.append(f"--stable-after={stable}")
        if stop_timeout:
            flags.append(f"--stop-timeout={stop_timeout}s")
        if rewrite:
            flags.append("--rewrite-signal=%s:%s" % rewrite)
        if group:
            flags.append("--forward-to=group")
        return [str(self.options.bin / "guardian"), *flags, "--", *words]


class Tini(Peer):
    name = binary = "tini"

    def command(self, words, work, restart=False, rewrite=None, stop_timeout=None, group=False, **_):
        if restart or rewrite:
            raise Missing
        return ["tini", "-s", *(["-g"] if group else []), "--", *words]


class DumbInit(Peer):
    name = binary = "dumb-init"

    def command(self, words, work, restart=False, rewrite=None, stop_timeout=None, **_):
        # Without --single-child it signals the whole session already.
        if restart:
            raise Missing
        flags = ["--rewrite", "%s:%s" % rewrite] if rewrite else []
        return ["dumb-init", *flags, "--", *words]


class Catatonit(Peer):
    name, binary = "catatonit", "catatonit"

    def command(self, words, work, restart=False, rewrite=None, stop_timeout=None, group=False, **_):
        if restart or rewrite:
            raise Missing
        return ["catatonit", *(["-g"] if group else []), "--", *words]


def quoted(words):
    return " ".join("'" + w.replace("'", "'\\''") + "'" for w in words)


class Runit(Peer):
    name, binary, wrapper, restarts = "runit", "runsv", False, True

    def command(self, words, work, rewrite=None, **_):
        if rewrite:
            raise Missing
        service = work / "service"
        service.mkdir()
        (service / "run").write_text(f"#!/bin/sh\nexec {quoted(words)}\n")
        (service / "run").chmod(0o755)
        return ["runsv", str(service)]


class S6(Peer):
    name, binary, wrapper, restarts = "s6", "s6-supervise", False, True

    def command(self, words, work, rewrite=None, stop_timeout=None, cap=None, window=None, **_):
        if rewrite:
            raise Missing
        service = work / "service"
        service.mkdir()
        (service / "run").write_text(f"#!/bin/sh\nexec {quoted(words)}\n")
        (service / "run").chmod(0o755)
        if stop_timeout:
            (service / "timeout-kill").write_text(f"{stop_timeout * 1000}\n")
        if cap is not None:
            (service / "finish").write_text(
                f"#!/bin/sh\nexec s6-permafailon 3600 {cap + 1} 0-255,SIGKILL,SIGSEGV,SIGABRT true\n")
            (service / "finish").chmod(0o755)
        return ["s6-supervise", str(service)]


class Supervisord(Peer):
    name, binary, wrapper, restarts = "supervisord", "supervisord", False, True

    def there(self):
        return Path("/usr/bin/supervisord").exists()

    def command(self, words, work, rewrite=None, stop_timeout=None, cap=None, **_):
        if rewrite:
            raise Missing
        (work / "conf").write_text(
            "[supervisord]\nnodaemon=true\nlogfile=%s/log\npidfile=%s/pid\nchildlogdir=%s\n"
            "[program:it]\ncommand=%s\nautorestart=true\nstopwaitsecs=%d\nstartretries=%d\n"
            % (work, work, work, " ".join(words), stop_timeout or 10, cap if cap is not None else 3))
        return ["/usr/bin/python3", "/usr/bin/supervisord", "-c", str(work / "conf")]


PEERS = [Guardian, Tini, DumbInit, Catatonit, S6, Runit, Supervisord]
CASES = []


def case(title, brief=True):
    """`brief`: takes a second at most, and looks at no clock: part of `make test`."""
    def keep(function):
        function.brief = brief
        CASES.append((title, function))
        return function
    return keep


def ensure(truth, otherwise):
    if not truth:
        raise AssertionError(otherwise)


@case("exit codes 0…255 come out as they are")
def exit_codes(peer, work):
    if not peer.wrapper:
        raise Missing
    codes = (0, 1, 64, 78, 126, 127, 128, 143, 255) if peer.options.brief else range(256)
    for code in codes:
        place = work / str(code)
        place.mkdir()
        got = peer.start(["exit", code], place).wait()
        ensure(got == code, f"exit {code} came out as {got}")


@case("a death by signal n comes out as 128 + n")
def signal_codes(peer, work):
    if not peer.wrapper:
        raise Missing
    fatal = [n for n in range(1, 65) if n not in (17, 18, 19, 20, 21, 22, 23, 28, 32, 33)]
    for number in (1, 6, 9, 11, 13, 15, 31, 34, 64) if peer.options.brief else fatal:
        place = work / str(number)
        place.mkdir()
        got = peer.start(["die", number], place).wait()
        ensure(got == 128 + number, f"signal {number} came out as {got}")


@case("a command that cannot be run: 127 not found, 126 not executable")
def exec_codes(peer, work):
    if not peer.wrapper:
        raise Missing
    plain = work / "plain"
    plain.write_text("no program")
    for path, code in ((work / "absent", 127), (plain, 126)):
        place = work / f"run{code}"
        place.mkdir()
        command = peer.command([str(path)], place, **({"cap": 0} if peer.restarts else {}))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env=peer.environment(place))
        got = process.wait(DEADLINE)
        ensure(got == code, f"{path.name}: {got} instead of {code}")


FORWARDED = [s for s in (*range(1, 32), *range(34, 65)) if s not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGTERM,
             signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS)]


def name_of(number):
    return signal.Signals(number).name if number < 32 else f"real-time signal {number}"


def arrived(run, number):
    return run.lines("signal").count(["signal", str(int(number))])


@case("every signal that can be caught is forwarded, real-time ones too, and each once")
def forwarding(peer, work):
    if not peer.wrapper:
        raise Missing
    run = peer.start(["listen"], work)
    ensure(run.wait_starts(), "the program did not start")
    # What a supervisor takes as a request to itself is no forwarding.
    for number in FORWARDED:
        if number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGINT, signal.SIGQUIT):
            continue
        run.signal(number)
        ensure(until(lambda: arrived(run, number), 5), f"{name_of(number)} did not arrive")
    run.signal(signal.SIGTERM)
    ensure(run.wait() == 0, "TERM did not end it with the program's own 0")
    # The stop signal is the last that can come: nothing is on its way any more.
    twice = [name_of(n) for n in FORWARDED if arrived(run, n) > 1 and n != signal.SIGCONT]
    ensure(not twice, f"more than once: {twice}")
    # A stop is followed by one more CONT in some: a stopped program would not see it.
    ensure(arrived(run, signal.SIGCONT) <= 2, "CONT arrived more than twice")


@case("real-time signals that come together all arrive, in their order")
def forwarding_queue(peer, work):
    if not peer.wrapper:
        raise Missing
    run = peer.start(["listen"], work)
    ensure(run.wait_starts(), "the program did not start")
    for _ in range(20):
        run.signal(40)
    ensure(until(lambda: arrived(run, 40) == 20, 5), f"{arrived(run, 40)} of 20 arrived")


@case("signals can be forwarded to the whole process group")
def forwarding_group(peer, work):
    if not peer.wrapper:
        raise Missing
    run = peer.start(["listen-both"], work, group=True)
    ensure(run.wait_line("ready"), "the program did not start")
    run.signal(signal.SIGUSR1)
    ensure(until(lambda: len(run.lines("signal")) == 2, 5), f"it arrived {len(run.lines('signal'))} times in two processes")


@case("TSTP, TTIN and TTOU are forwarded too")
def forwarding_job_control(peer, work):
    if not peer.wrapper:
        raise Missing
    run = peer.start(["listen"], work)
    ensure(run.wait_starts(), "the program did not start")
    for number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        run.signal(number)
        got = until(lambda: arrived(run, number), 3)
        run.signal(signal.SIGCONT)
        ensure(got, f"{number.name} did not arrive")
        ensure(arrived(run, number) == 1, f"{number.name} arrived more than once")


@case("a program that stops itself by a forwarded TSTP goes on at CONT")
def job_control_default(peer, work):
    if not peer.wrapper:
        raise Missing
    run = peer.start(["wait"], work)
    started = run.wait_starts()
    ensure(started, "the program did not start")
    state = lambda: Path(f"/proc/{started[0][0]}/stat").read_text().rsplit(")", 1)[1].split()[0]
    ensure(until(lambda: state() == "S", 5), "it does not wait")
    run.signal(signal.SIGTSTP)
    ensure(until(lambda: state() == "T", 3), "it is not stopped")
    run.signal(signal.SIGCONT)
    ensure(until(lambda: state() == "S", 3), "it does not go on")


@case("a signal can be rewritten, and dropped")
def rewriting(peer, work):
    for pair, arrives in (((1, 12), "12"), ((1, 0), None)):
        place = work / f"to{pair[1]}"
        place.mkdir()
        run = peer.start(["listen"], place, rewrite=pair)
        ensure(run.wait_starts(), "the program did not start")
        run.signal(signal.SIGHUP)
        run.signal(signal.SIGUSR1)
        ensure(run.wait_line("signal"), "nothing arrived")
        ensure(until(lambda: ["signal", "10"] in run.lines("signal"), 5), "USR1 did not arrive")
        ensure(["signal", "1"] not in run.lines("signal"), "HUP arrived as HUP")
        ensure(arrives is None or until(lambda: ["signal", arrives] in run.lines("signal"), 5), "HUP did not arrive as 12")


@case("a stop request can be rewritten: the program gets the other signal, and the supervisor leaves")
def rewriting_stop(peer, work):
    run = peer.start(["listen"], work, rewrite=(15, 10))
    started = run.wait_starts()
    ensure(started, "the program did not start")
    run.signal(signal.SIGTERM)
    ensure(until(lambda: arrived(run, 10), 5), "USR1 did not arrive")
    ensure(not arrived(run, 15), "TERM arrived as well")
    os.kill(started[0][0], signal.SIGKILL)
    ensure(run.wait(10) is not None, "the supervisor did not leave when the program had ended")


def status_masks(run):
    # 32 and 33 are the C library's: nobody can set them from here, and whoever started us may have.
    ours = ~(1 << 31 | 1 << 32)
    return {l[0].rstrip(":"): int(l[1], 16) & ours for l in run.lines() if l[0] in ("SigBlk:", "SigIgn:")}


@case("the program starts with the signal mask and the ignored signals it would have alone")
def inherited_signals(peer, work):
    for name, ignored, blocked in (("plain", (), ()), ("changed", (signal.SIGUSR1, signal.SIGPIPE), (signal.SIGUSR2,))):
        place = work / name
        place.mkdir()

        def prepare():
            for number in range(1, 65):
                if number not in (9, 19, 32, 33):
                    signal.signal(number, signal.SIG_DFL)
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        run = peer.start(["state", 1], place, prepare=prepare)
        ensure(run.wait_starts(), "the program did not start")
        got = status_masks(run)
        bits = lambda set_: sum(1 << (n - 1) for n in set_)
        ensure(got["SigIgn"] == bits(ignored), f"ignored {got['SigIgn']:#x} instead of {bits(ignored):#x}")
        ensure(got["SigBlk"] == bits(blocked), f"blocked {got['SigBlk']:#x} instead of {bits(blocked):#x}")


@case("no descriptor of the supervisor leaks into the program")
def descriptors(peer, work):
    run = peer.start(["state", 1], work)
    ensure(run.wait_starts(), "the program did not start")
    leaked = [l for l in run.lines("fd") if int(l[1]) > 2 and l[2] == "inherited"]
    ensure(not leaked, "; ".join(" ".join(l) for l in leaked))


@case("orphans are reaped")
def reaping(peer, work):
    run = peer.start(["orphans", 20], work)
    ensure(run.wait_line("ready"), "the program did not get ready")
    pids = [int(l[1]) for l in run.lines("orphan")]
    parents = lambda: [p for p in pids if zombie(p)]
    ensure(until(lambda: not parents() and not any(alive(p) for p in pids), 5), f"{len(parents())} zombies are left")


@case("a stop ends the whole family: children, and orphans in sessions of their own")
def family(peer, work):
    run = peer.start(["family"], work, **({"stop_timeout": 1} if isinstance(peer, Guardian) else {}))
    ensure(run.wait_line("ready") and run.wait_line("orphan") and run.wait_line("child"), "the family did not get ready")
    pids = [int(l[1]) for l in run.lines() if l[0] in ("child", "orphan", "start")]
    run.signal(signal.SIGTERM)
    ensure(run.wait() is not None, "the supervisor did not leave")
    left = [p for p in pids if alive(p)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    ensure(not left, f"{len(left)} of {len(pids)} processes are left")


@case("the whole family is gone before a new life starts")
def family_restart(peer, work):
    if not peer.restarts:
        raise Missing
    run = peer.start(["family", 3], work, restart=True, **({"cap": 50, "stop_timeout": 1} if isinstance(peer, Guardian) else {}))
    ensure(run.wait_starts(2), "it was not restarted")
    lines = run.lines()
    second = [i for i, l in enumerate(lines) if l[0] == "start"][1]
    old = [int(l[1]) for l in lines[:second] if l[0] in ("child", "orphan")]
    left = [p for p in old if alive(p)]
    run.signal(signal.SIGTERM)
    run.wait()
    for l in run.lines():
        if l[0] in ("child", "orphan") and alive(int(l[1])):
            os.kill(int(l[1]), signal.SIGKILL)
    ensure(not left, f"{len(left)} processes of the first life lived beside the second")


@case("a stop ends a program that ignores TERM", brief=False)
def escalation(peer, work):
    run = peer.start(["deaf"], work, stop_timeout=1)
    started = run.wait_starts()
    ensure(started, "the program did not start")
    run.signal(signal.SIGTERM)
    left = run.wait(8)
    still = alive(started[0][0])
    if still:
        os.kill(started[0][0], signal.SIGKILL)
    ensure(left is not None and not still, "still there after 8 s")


@case("a second stop request escalates at once")
def second_stop(peer, work):
    run = peer.start(["deaf"], work, stop_timeout=60)
    started = run.wait_starts()
    ensure(started, "the program did not start")
    run.signal(signal.SIGTERM)
    time.sleep(0.2)  # two requests, not one: nothing shows from outside that the first was taken
    run.signal(signal.SIGTERM)
    left = run.wait(8)
    if alive(started[0][0]):
        os.kill(started[0][0], signal.SIGKILL)
    ensure(left is not None, "still there after 8 s")


@case("the program does not survive its supervisor's death by KILL")
def orphaned(peer, work):
    run = peer.start(["wait"], work)
    started = run.wait_starts()
    ensure(started, "the program did not start")
    run.signal(signal.SIGKILL)
    run.wait()
    gone = until(lambda: not alive(started[0][0]), 5)
    if not gone:
        os.kill(started[0][0], signal.SIGKILL)
    ensure(gone, "it lives on")


@case("as PID 1 of a container it reaps, forwards, and leaves nothing behind")
def first_process(peer, work):
    if not peer.wrapper:
        raise Missing
    if subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], stderr=subprocess.DEVNULL).returncode:
        raise Missing("this machine permits no new pid namespaces")
    book = work / "book"
    command = peer.command([str(peer.options.probe), "first", str(book)], work)
    # The first process's own number, as this side sees it, to signal it.
    process = subprocess.Popen(["unshare", "--pid", "--fork", "--mount-proc", *command], cwd=work,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env=peer.environment(work))
    run = Run(process, book, work)
    ensure(run.wait_line("ready"), "the program did not get ready")
    first = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    ensure(int(run.lines("parent")[0][1]) == 1, "the program's parent is not PID 1")
    children = lambda: Path(f"/proc/{first}/task/{first}/children").read_text().split()
    ensure(until(lambda: not any(zombie(int(c)) for c in children()), 5), "zombies are left")
    os.kill(first, signal.SIGUSR1)
    ensure(run.wait_line("usr1", 5), "USR1 did not arrive")
    # Nothing of its own but the default action, which PID 1 itself would not have.
    os.kill(first, signal.SIGUSR2)
    ensure(run.wait(10) == 128 + signal.SIGUSR2, f"after USR2 it left with {process.returncode}")


@case("a program that dies again and again is given up")
def cap(peer, work):
    if not peer.restarts:
        raise Missing
    run = peer.start(["exit", 7], work, restart=True, cap=2)
    ensure(run.wait_starts(1), "the program did not start")
    code = run.wait(15)
    starts = len(run.starts())
    if code is None:  # some stay up and only stop starting it: is it quiet now?
        ensure(not until(lambda: len(run.starts()) > starts, 4), "it is restarted for ever")
        run.signal(signal.SIGTERM)
        run.wait()


@case("also one that dies every 1.5 s", brief=False)
def slow_cap(peer, work):
    if not peer.restarts:
        raise Missing
    run = peer.start(["late", 1500], work, restart=True, cap=2)
    ensure(run.wait_starts(1), "the program did not start")
    ended = run.wait(14)
    starts = len(run.starts())
    if ended is None:
        ensure(not until(lambda: len(run.starts()) > starts, 4), f"{starts} starts and no end")


@case("after giving up the supervisor leaves, and not with 0")
def give_up_code(peer, work):
    if not peer.restarts:
        raise Missing
    run = peer.start(["exit", 7], work, restart=True, cap=1)
    code = run.wait(15)
    ensure(code is not None, "it stays")
    ensure(code != 0, "it leaves with 0")
    ensure(not peer.wrapper or code == 7, f"it leaves with {code}, the program left with 7")


@case("restarts back off", brief=False)
def backoff(peer, work):
    if not peer.restarts:
        raise Missing
    if not isinstance(peer, (Guardian, Supervisord)):
        raise Missing
    run = peer.start(["exit", 7], work, restart=True, cap=4, **({"delay": "100ms"} if isinstance(peer, Guardian) else {}))
    ensure(run.wait_starts(4), "too few restarts")
    times = [t for _, t in run.starts()]
    gaps = [b - a for a, b in zip(times, times[1:])]
    ensure(gaps[-1] > gaps[0] * 1.5, f"gaps {['%.2f' % g for g in gaps]}")


@case("a stable life resets the backoff", brief=False)
def backoff_reset(peer, work):
    if not peer.restarts or not isinstance(peer, (Guardian, Supervisord)):
        raise Missing
    # guardian: delays of 0, 0.4, 0.8 and, without the reset, 1.6 s; a stable life is one of 1.5 s.
    run = peer.start(["lives", 0, 0, 0, 2500, 0], work, restart=True,
                     **({"delay": "400ms", "stable": "1500ms"} if isinstance(peer, Guardian) else {}), cap=20)
    ensure(run.wait_starts(5, 30), "too few restarts")
    times = [t for _, t in run.starts()]
    ensure(times[4] - times[3] - 2.5 < 1.4, f"{times[4] - times[3] - 2.5:.2f} s after a stable life")


@case("the first restart is prompt: below 100 ms", brief=False)
def prompt(peer, work):
    if not peer.restarts:
        raise Missing
    run = peer.start(["late", 1200], work, restart=True, **({"stable": "1s", "cap": 9} if isinstance(peer, Guardian) else {}))
    ensure(run.wait_starts(2), "it was not restarted")
    times = [t for _, t in run.starts()]
    gap = times[1] - times[0] - 1.2
    ensure(gap < 0.1, f"{gap * 1000:.0f} ms")


@case("the last lines before a KILL are kept")
def last_lines(peer, work):
    run = peer.start(["lines", 500], work, **({"restart": True, "cap": 0} if isinstance(peer, Guardian) else {}))
    ensure(run.wait_starts(), "the program did not start")
    wanted = b"line 500 of 500"
    places = [p for p in (work / "stderr", *work.glob("it-stderr*")) if p.exists()]
    ensure(until(lambda: any(wanted in p.read_bytes() for p in [*places, *work.glob("it-stderr*")]), 5), "the last line is lost")
    if not isinstance(peer, Guardian):
        raise Missing  # passed on, but bound to the death nowhere
    kept = until(lambda: [p for p in (work / "state").rglob("stderr.log") if wanted in p.read_bytes()], 10)
    ensure(kept, "no report holds the last line")


def has_monotonic_timerfd(pid):
    for info in glob.glob(f"/proc/{pid}/fdinfo/*"):
        try:
            if "clockid: 1\n" in Path(info).read_text():
                return True
        except OSError:
            pass
    return False


@case("the clock set forward or back neither ends a stop early nor keeps it from its end", brief=False)
def clock_step(peer, work):
    if isinstance(peer, (Tini, DumbInit, Catatonit, Runit)):
        raise Missing  # no time limit of a stop
    library = (glob.glob("/usr/lib/*/faketime/libfaketime.so.1") or [None])[0]
    if not library:
        raise Missing("no libfaketime here: nobody can set the clock for one program alone")
    for name, step in (("forward", "+1d"), ("back", "-1d")):
        place = work / name
        place.mkdir()
        clock = place / "clock"
        clock.write_text("+0\n")
        # The wall clock only: the supervisor reads it from a file at each look.
        extra = {"LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1",
                 "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}
        run = peer.start(["deaf"], place, stop_timeout=3, extra=extra)
        started = run.wait_starts()
        ensure(started, "the program did not start")
        if has_monotonic_timerfd(run.process.pid):
            os.kill(started[0][0], signal.SIGKILL)
            run.signal(signal.SIGKILL)
            run.wait(5)
            raise Missing("libfaketime moves timerfd's monotonic timers too, which no clock step does")
        run.signal(signal.SIGTERM)
        begun = time.monotonic()
        clock.write_text(step + "\n")
        # Looks now and then, and looking is what it is to be tempted by.
        while time.monotonic() - begun < 2 and alive(started[0][0]):
            if peer.wrapper:
                run.signal(signal.SIGUSR1)
            time.sleep(0.1)
        early = not alive(started[0][0])
        ended = until(lambda: not alive(started[0][0]), 10)
        if not ended:
            os.kill(started[0][0], signal.SIGKILL)
        ensure(not early, f"clock {name}: killed after {time.monotonic() - begun:.1f} s of 3")
        run.wait(5)
        # What the library leaves behind of a process that was killed.
        for left in glob.glob("/dev/shm/*faketime_*"):
            pid = left.rsplit("_", 1)[1]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                os.unlink(left)
        ensure(ended, f"clock {name}: still there after {time.monotonic() - begun:.0f} s")


@case("a grandchild that holds the output pipe does not block the restart")
def holder(peer, work):
    if not peer.restarts:
        raise Missing
    run = peer.start(["holder"], work, restart=True, **({"cap": 50} if isinstance(peer, Guardian) else {}))
    ensure(run.wait_starts(1), "the program did not start")
    ensure(run.wait_starts(2, 6), "no second life within 6 s")


@case("an output that nobody reads does not stop the program", brief=False)
def stuck_sink(peer, work):
    if isinstance(peer, (Tini, DumbInit, Catatonit, S6, Runit)):
        raise Missing  # the program writes to the sink itself
    reader, writer = os.pipe()
    try:
        run = peer.start(["chatter", 2000], work, stderr=writer)
        ensure(run.wait_starts(), "the program did not start")
        ensure(run.wait_line("done", 40), "it hangs in write")
    finally:
        os.close(reader)
        os.close(writer)


@case("a full disk as output does not stop the program")
def full_sink(peer, work):
    if isinstance(peer, (Tini, DumbInit, Catatonit, S6, Runit)):
        raise Missing
    with open("/dev/full", "wb") as full:
        run = peer.start(["chatter", 500], work, stderr=full)
    ensure(run.wait_starts(), "the program did not start")
    ensure(run.wait_line("done", 20), "it did not get through")
    ensure(not run.lines("write"), "its writes failed")


@case("a closed output does not stop the program")
def closed_sink(peer, work):
    if isinstance(peer, (Tini, DumbInit, Catatonit, S6, Runit)):
        raise Missing
    reader, writer = os.pipe()
    run = peer.start(["chatter", 500], work, stderr=writer)
    os.close(reader)
    os.close(writer)
    ensure(run.wait_starts(), "the program did not start")
    ensure(run.wait_line("done", 20), "it did not get through")
    ensure(not run.lines("write"), "its writes failed")


@case("in a terminal the program gets the foreground, and ^C reaches it once")
def terminal(peer, work):
    if not peer.wrapper:
        raise Missing
    book = work / "book"
    for words, check in ((["state", str(book), "1"], "terminal"), (["listen", str(book)], "interrupt")):
        book.unlink(missing_ok=True)
        pid, master = pty.fork()
        if pid == 0:
            os.environ.update(peer.environment(work))
            command = peer.command([str(peer.options.probe), *words], work)
            os.execvp(command[0], command)
        run = Run(None, book, work)
        try:
            ensure(run.wait_starts(), "the program did not start")
            if check == "terminal":
                group = int(run.lines("group")[0][2])
                foreground = int(run.lines("terminal")[0][2])
                ensure(run.lines("terminal")[0][1] == "1", "its input is no terminal")
                ensure(foreground == group, f"foreground group {foreground}, its own {group}")
            else:
                os.write(master, b"\x03")
                ensure(run.wait_line("signal", 5) == [["signal", "2"]], f"INT did not arrive once: {run.lines('signal')}")
                os.write(master, b"\x1a")
                ensure(until(lambda: ["signal", "20"] in run.lines("signal"), 5), "^Z did not arrive")
                ensure(run.lines("signal").count(["signal", "2"]) == 1, "INT arrived twice")
        finally:
            for l in run.starts():
                if alive(l[0]):
                    os.kill(l[0], signal.SIGKILL)
            end = time.monotonic() + 8
            while time.monotonic() < end:
                ready, _, _ = select.select([master], [], [], 0.05)
                if ready:
                    try:
                        if not os.read(master, 65536):
                            break
                    except OSError:
                        break
                if os.waitpid(pid, os.WNOHANG)[0]:
                    pid = 0
                    break
            if pid:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            os.close(master)


def survivors(marker):
    """Processes that a case left behind: their command line names its own folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if marker in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def clean(work):
    marker = str(work).encode()
    for _ in range(3):
        left = survivors(marker)
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        until(lambda: not any(alive(p) for p in left), 2)
    shutil.rmtree(work, ignore_errors=True)


def ask(index, peer):
    """One case of one peer: the mark, and why."""
    work = Path(tempfile.mkdtemp(prefix="conformance."))
    try:
        CASES[index][1](peer, work)
        return "pass", ""
    except Missing as error:
        return "n/a", str(error)
    except Exception as error:  # whatever a supervisor does, the other cases go on
        return "fail", f"{error}" if isinstance(error, AssertionError) else repr(error)
    finally:
        clean(work)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer", action="append", help="only this one; more than once for more")
    parser.add_argument("--case", action="append", help="only cases whose title holds this text")
    parser.add_argument("--bin", type=Path, default=ROOT / ".build/release")
    parser.add_argument("--probe", type=Path, default=ROOT / ".build/fixtures/conformance_probe")
    parser.add_argument("--brief", action="store_true", help="only what takes no second and looks at no clock")
    parser.add_argument("--jobs", type=int, default=1, help="so many cases at one time")
    options = parser.parse_args()
    if not options.probe.exists():
        sys.exit(f"conformance: no probe program at {options.probe}: run 'make fixtures'")
    peers = []
    for kind in PEERS:
        peer = kind(options)
        if options.peer and peer.name not in options.peer:
            continue
        if peer.there():
            peers.append(peer)
        else:
            print(f"left out: {peer.name} is not installed", flush=True)
    cases = [(t, f) for t, f in CASES if (not options.case or any(c in t for c in options.case))
             and (f.brief or not options.brief)]
    scores = {}
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        asked = [(title, peer, pool.submit(ask, CASES.index((title, function)), peer))
                 for title, function in cases for peer in peers]
        for title, peer, answer in asked:
            mark, why = answer.result()
            scores[title, peer.name] = mark
            if why:
                print(f"{peer.name}: {title}: {'left out: ' if mark == 'n/a' else ''}{why}", flush=True)
    width = max(32, *(len(t) for t, _ in cases))
    print("\n" + " " * width + "  " + "  ".join(f"{p.name:>11}" for p in peers))
    for title, _ in cases:
        print(f"{title:<{width}}  " + "  ".join(f"{scores[title, p.name]:>11}" for p in peers))
    marks = {p.name: [scores[t, p.name] for t, _ in cases] for p in peers}
    totals = [f"{m.count('pass')} of {len(m) - m.count('n/a')}" for m in marks.values()]
    print(f"{'passed, of those it can express':<{width}}  " + "  ".join(f"{t:>11}" for t in totals))
    print(f"{'n/a: it has no such feature':<{width}}  " + "  ".join(f"{m.count('n/a'):>11}" for m in marks.values()))
    own = marks.get("guardian")
    if own:
        passed, failed = own.count("pass"), own.count("fail")
        print(f"\nguardian: {passed} passed, {failed} failed, {own.count('n/a')} could not be asked here")
        sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
