"""A small server with two workers that share one listening socket. /crash kills the worker that
answers it by a null pointer; the main process starts another."""
import ctypes, os, signal, socket, sys

listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen(64)


def work():
    while True:
        client, _ = listener.accept()
        request = client.recv(4096)
        if b"/crash" in request:
            print("worker crashes", file=sys.stderr, flush=True)
            ctypes.string_at(0)
        client.sendall(b"HTTP/1.0 200 OK\r\n\r\nworker %d\n" % os.getpid())
        client.close()


def start():
    pid = os.fork()
    if pid == 0:
        work()
    workers.add(pid)


workers = set()
for _ in range(2):
    start()
signal.signal(signal.SIGHUP, lambda *_: print("reload", flush=True))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("serving", flush=True)
while True:
    pid, status = os.wait()
    if pid in workers:
        workers.discard(pid)
        start()
