"""The control daemon: starts the server, decides who may be its client, hands clients over.

One thread, one loop over all sockets; nothing in it waits for a peer. As with the real one there is
one server at a time. Without ``-multiuser-server`` it belongs to the user of its first client, and
another user waits for its clients to end: here that one is refused with MPS_SERVER_NOT_READY, as
NVIDIA's MPS guide has it ("User ID Mismatch Without Multi-User Mode"), unless the server has no
client, in which case it is replaced.
"""

import contextlib
import os
import selectors
import signal
import socket
import time
from pathlib import Path

from . import commands
from .peers import MpsClient, MpsServer, Peer
from .server_process import become_server
from .settings import MpsSettings
from .wire import (
    LARGEST_MESSAGE,
    MPS_SERVER_NOT_READY,
    MpsControlError,
)

_MOST_SILENT = 128


def log(text: str) -> None:
    """Writes one line to the log, which is stdout; where there is no room for it, it is lost."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    line = f"[{stamp}.{int(now % 1 * 1000):03d} Control {os.getpid()}] {text}\n"
    with contextlib.suppress(OSError):
        os.write(1, line.encode())


class ControlDaemon:
    """The daemon's state and loop."""

    def __init__(
        self,
        machine: Path,
        identifier: str,
        defaults: MpsSettings,
        log_directory: Path,
        multiuser: bool,
    ) -> None:
        self.defaults = defaults
        self.server: MpsServer | None = None
        self._machine, self._identifier = machine, identifier
        self._log_directory, self._multiuser = log_directory, multiuser
        self._selector = selectors.DefaultSelector()
        self._next_client = 1
        self._replacing: list[Peer] = []  # drivers for whose user the server is being replaced
        self._silent: dict[int, Peer] = {}  # have not said a whole line, by descriptor
        self._quitters: list[Peer] = []
        self._quitting = self._done = False
        self._force_at: float | None = None

    # ---- servers ---------------------------------------------------------------------------------

    def start_server(self, uid: int, gid: int) -> MpsServer:
        """Starts a server of a user; it is not active yet.

        Raises:
            MpsControlError: there is one, or it cannot be started.
        """
        if self.server is not None:
            raise MpsControlError(f"server {self.server.pid} of user {self.server.uid} is running")
        own = os.geteuid()
        if self._multiuser:
            uid, gid = own, os.getegid()
        elif uid != own and own != 0:
            raise MpsControlError(f"a daemon of user {own} cannot start a server of user {uid}")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = os.fork()
        except OSError as error:
            ours.close()
            theirs.close()
            raise MpsControlError(f"the server cannot be started: {error.strerror}") from None
        if pid == 0:
            become_server(
                theirs, uid, gid, self._machine, self.defaults.devices, self._log_directory
            )
        theirs.close()
        ours.setblocking(False)
        log(f"Starting new server {pid} for user {uid}")
        self.server = MpsServer(pid, ours, uid, self.defaults.copy())
        self._selector.register(ours, selectors.EVENT_READ, self._hear_server)
        return self.server

    def _hear_server(self, _: object) -> None:
        server = self.server
        assert server is not None
        try:
            words = server.channel.recv(LARGEST_MESSAGE).decode().split(" ", 2)
        except BlockingIOError:
            return
        except OSError:
            words = [""]
        match words:
            case ["ready"]:
                server.active = True
                log(f"NEW SERVER {server.pid}: Ready")
                for tool in server.starters:
                    tool.answer("0")
                waiting, server.starters, server.waiting = server.waiting, [], []
                for driver in waiting:
                    self._hand_over(server, driver)
            case ["failed", code, reason]:
                server.failure, server.reason = int(code), reason
            case ["left", number]:
                client = server.clients.pop(int(number))
                log(f"Client {client.pid} left server {server.pid}")
                if server.faulted and not server.clients:
                    server.faulted = False
                    log(f"Server {server.pid} serves again")
            case ["fault", number]:
                server.faulted = True
                log(f"Server {server.pid} has a fault: it waits for its clients to end")
            case _:
                self._lose_server(server)
                return
        if server.draining and server.idle:
            server.kill()

    def _lose_server(self, server: MpsServer) -> None:
        self._selector.unregister(server.channel)
        server.channel.close()
        server.kill()  # it may have closed the channel and live
        status = os.waitstatus_to_exitcode(os.waitpid(server.pid, 0)[1])
        log(f"Server {server.pid} ended with status {status}: {server.reason}")
        self.server = None
        for driver in server.waiting:
            driver.refuse(server.failure)
        for tool in server.starters:
            tool.answer(f"1the server has not started: {server.reason}")
        for tool in server.enders:
            tool.answer("0")
        waiting, self._replacing = self._replacing, []
        for driver in waiting:
            self._admit(driver)
        if self._quitting and self.server is None:
            self._done = True

    # ---- clients ---------------------------------------------------------------------------------

    def _admit(self, driver: Peer) -> None:
        server = self.server
        log(f"NEW CLIENT {driver.pid} from user {driver.uid}")
        if self._quitting or (server is not None and (server.draining or server.faulted)):
            driver.refuse(MPS_SERVER_NOT_READY)
        elif server is None:
            try:
                self.start_server(driver.uid, driver.gid).waiting.append(driver)
            except MpsControlError as error:
                log(f"Client {driver.pid} refused: {error}")
                driver.refuse(MPS_SERVER_NOT_READY)
        elif self._multiuser or driver.uid == server.uid:
            if server.active:
                self._hand_over(server, driver)
            else:
                server.waiting.append(driver)
        elif server.idle:
            self._replacing.append(driver)
            server.drain()
        else:
            log(f"Client {driver.pid} refused: server {server.pid} is of user {server.uid}")
            driver.refuse(MPS_SERVER_NOT_READY)

    def _hand_over(self, server: MpsServer, driver: Peer) -> None:
        number = self._next_client
        self._next_client += 1
        try:
            driver.socket.setblocking(True)
            socket.send_fds(server.channel, [str(number).encode()], [driver.socket.fileno()])
        except OSError as error:
            log(f"Client {driver.pid} refused: server {server.pid} does not take it: {error}")
            driver.refuse(MPS_SERVER_NOT_READY)
            return
        server.clients[number] = MpsClient(driver.pid, driver.devices)
        driver.answer(server.settings.greeting())

    # ---- the loop --------------------------------------------------------------------------------

    def quit(self, tool: Peer | None, force_after_s: float | None) -> None:
        """Ends with the last client, or by force after a time."""
        if tool is not None:
            self._quitters.append(tool)
        self._quitting = True
        if self.server is None:
            self._done = True
            return
        if force_after_s is not None:
            self._force_at = time.monotonic() + force_after_s
        self.server.drain()

    def run(self, listener: socket.socket) -> list[Peer]:
        """Serves until told to quit, or by SIGTERM or SIGINT, which end the server at once.

        Returns the tools that asked to quit; the caller answers when all is cleaned up.
        """
        wake_read, wake_write = socket.socketpair()
        wake_read.setblocking(False)
        wake_write.setblocking(False)
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.quit(None, 0.0))
        self._selector.register(wake_read, selectors.EVENT_READ, lambda s: s.recv(64))
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        while not self._done:
            left_s = None
            if self._force_at is not None:
                left_s = self._force_at - time.monotonic()
                if left_s <= 0 and self.server is not None:
                    self.server.kill()
                    left_s = None
            for key, _ in self._selector.select(left_s):
                key.data(key.fileobj)
        return self._quitters

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # gone again, or no descriptor left for it
            self._drop_silent(0)
            return
        self._drop_silent(_MOST_SILENT - 1)
        connection.setblocking(False)
        peer = Peer(connection)
        self._silent[connection.fileno()] = peer
        self._selector.register(connection, selectors.EVENT_READ, lambda _: self._hear(peer))

    def _drop_silent(self, most: int) -> None:
        """Closes the oldest of those who connected and say nothing, beyond so many."""
        while len(self._silent) > most:
            self._forget(next(iter(self._silent.values()))).socket.close()

    def _forget(self, peer: Peer) -> Peer:
        del self._silent[peer.socket.fileno()]
        self._selector.unregister(peer.socket)
        return peer

    def _hear(self, peer: Peer) -> None:
        if peer.socket.fileno() < 0:  # dropped since the selector saw it
            return
        try:
            part = peer.socket.recv(LARGEST_MESSAGE)
        except OSError:
            part = b""
        peer.heard += part
        line, newline, _ = peer.heard.partition(b"\n")
        if not newline and part and len(line) < LARGEST_MESSAGE:
            return  # more is to come
        self._forget(peer)
        if not newline:
            peer.socket.close()
            return
        words = line.decode(errors="replace").split()
        if words[:1] != ["client"]:
            commands.do(self, peer, words)
        elif words[1:2] != [self._identifier]:
            peer.answer("other\nend\n")
        else:
            peer.devices = "".join(words[2:3]).split(",")
            self._admit(peer)
