#!/usr/bin/env python3
"""A file system that leaves requests unanswered: who waits for one is in the kernel, and once KILL was
sent to it, it cannot be interrupted (state D) and does not end. Speaks the FUSE protocol by itself, so
it needs nothing but root, /dev/fuse and Python.

  hungfuse.py FOLDER   mounts it at FOLDER, prints "mounted", serves until standard input ends or TERM;
                       then lets everybody go

Looking up the name `hang` is not answered. `file` can be opened and mapped; reading it, polling it and
closing it are not answered.

Exit status 77, with the reason on standard error, where it cannot be mounted. However it ends, the
kernel lets the waiting processes go: the file system dies with its daemon."""
import ctypes, os, select, signal, struct, sys

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH = 1, 2, 3, 14, 15, 17, 18, 25
INIT, INTERRUPT, POLL, BATCH_FORGET = 26, 36, 40, 42
ENOENT, ENOSYS = 2, 38
MNT_DETACH = 2
HOUR = 3600
libc = ctypes.CDLL(None, use_errno=True)


def skip(why):
    print(f"hungfuse: skipped: {why}", file=sys.stderr)
    sys.exit(77)


def answer(device, unique, body=b"", error=0):
    try:
        os.write(device, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)
    except OSError:
        pass  # who asked is gone


def attributes(inode):
    """struct fuse_attr: 1 is the top folder, 2 the file."""
    mode, links, size = (0o040755, 2, 0) if inode == 1 else (0o100666, 1, 1 << 16)
    return struct.pack("<QQQQQQIIIIIIIIII", inode, size, 0, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0)


def serve(device, stop):
    while True:
        ready = select.select([device, stop, 0], [], [])[0]
        if stop in ready or 0 in ready and not os.read(0, 1):
            return
        if device not in ready:
            continue
        try:
            request = os.read(device, 1 << 20)
        except InterruptedError:
            continue
        except OSError:
            return  # unmounted by somebody else
        _, operation, unique, inode = struct.unpack_from("<IIQQ", request)
        body = request[40:]
        name = body.split(b"\0")[0]
        if operation == INIT:
            major, minor, readahead, _ = struct.unpack_from("<IIII", body)
            answer(device, unique, struct.pack("<IIIIHHIIHHI28x", 7, min(minor, 31), readahead, 0, 12, 9, 65536, 1, 0, 0, 0))
        elif operation == GETATTR:
            answer(device, unique, struct.pack("<QII", HOUR, 0, 0) + attributes(inode))
        elif operation == STATFS:
            answer(device, unique, bytes(80))
        elif operation == LOOKUP and name == b"file":
            answer(device, unique, struct.pack("<QQQQII", 2, 0, HOUR, HOUR, 0, 0) + attributes(2))
        elif operation == OPEN:
            answer(device, unique, struct.pack("<QII", 1, 0, 0))
        elif operation == LOOKUP and name == b"hang" or operation in (READ, FLUSH, POLL):
            print("asked", operation, flush=True)  # taken, and never answered
        elif operation in (FORGET, INTERRUPT, BATCH_FORGET):
            pass  # these want no answer
        elif operation == RELEASE:
            answer(device, unique)
        else:
            answer(device, unique, error=ENOENT if operation == LOOKUP else ENOSYS)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 64
    folder = os.path.realpath(sys.argv[1])
    if os.geteuid() != 0:
        skip("not root")
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        skip(f"/dev/fuse: {error.strerror}")
    os.makedirs(folder, exist_ok=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"hungfuse", folder.encode(), b"fuse", 0, options.encode()) != 0:
        skip(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    stop, stopper = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(stopper, b"x"))
    try:
        print("mounted", flush=True)
        serve(device, stop)
    finally:
        # The connection ends with its last descriptor: every waiting process gets an error.
        os.close(device)
        libc.umount2(folder.encode(), MNT_DETACH)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
