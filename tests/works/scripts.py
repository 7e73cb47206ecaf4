"""Servers of scripts: Tcl, Perl, PHP's sockets, Guile, R, each of them with its own way to wait."""

import sys

from matrix import entry

# The client is the same for all: lines that come back in capitals, 20 connections at once, and at the end how many there were.
CLIENT = r"""
import random, socket, sys, threading
from concurrent.futures import ThreadPoolExecutor
port = int(sys.argv[1])
def client(n):
    rng = random.Random(n)
    lines = [b"%d " % n + b"abcXYZ"[:rng.randrange(7)] * rng.choice((1, 10, 1000, 9000)) for _ in range(30)]
    with socket.create_connection(("127.0.0.1", port)) as sock:
        stream = sock.makefile("rb")
        sock.sendall(lines[0] + b"\n")
        good = stream.readline() == lines[0].upper() + b"\n"
        writer = threading.Thread(target=sock.sendall, args=(b"\n".join(lines) + b"\n",))
        writer.start()
        good &= all(stream.readline() == line.upper() + b"\n" for line in lines)
        writer.join()
        sock.shutdown(socket.SHUT_WR)
        return good and stream.read() == b""
with ThreadPoolExecutor(20) as pool:
    print(sum(pool.map(client, range(20))))
"""

TCL = """
proc come {sock host port} {
    fconfigure $sock -blocking 0 -buffering line -translation binary
    fileevent $sock readable [list answer $sock]
}
proc answer {sock} {
    while {[gets $sock line] >= 0} { puts $sock [string toupper $line] }
    if {[eof $sock]} { close $sock }
}
socket -server come -myaddr 127.0.0.1 [lindex $argv 0]
vwait forever
"""

PERL = r"""
use strict; use IO::Socket::INET; use IO::Select;
my $l = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $ARGV[0], Listen => 50, ReuseAddr => 1) or die $!;
my $s = IO::Select->new($l);
my %rest;
while (my @ready = $s->can_read) {
    for my $c (@ready) {
        if ($c == $l) { $s->add(scalar $l->accept); next; }
        my $data; if (!sysread($c, $data, 20000)) { $s->remove($c); delete $rest{$c}; close $c; next; }
        $rest{$c} .= $data;
        while ($rest{$c} =~ s/^([^\n]*\n)//) { print $c uc $1; }
        $c->flush;
    }
}
"""

PHP = r"""<?php
$l = socket_create(AF_INET, SOCK_STREAM, SOL_TCP);
socket_set_option($l, SOL_SOCKET, SO_REUSEADDR, 1);
socket_bind($l, "127.0.0.1", (int)$argv[1]) && socket_listen($l, 50) || exit(1);
$all = [$l];
$rest = [];
while (true) {
    $ready = $all;
    $none = null;
    socket_select($ready, $none, $none, null);
    foreach ($ready as $c) {
        if ($c === $l) { $all[] = socket_accept($l); continue; }
        $id = spl_object_id($c);
        $data = socket_read($c, 30000);
        if ($data === false || $data === "") {
            socket_close($c);
            unset($rest[$id]);
            $all = array_filter($all, fn($a) => $a !== $c);
            continue;
        }
        $lines = explode("\n", ($rest[$id] ?? "") . $data);
        $rest[$id] = array_pop($lines);
        $out = "";
        foreach ($lines as $line) $out .= strtoupper($line) . "\n";
        while ($out !== "") $out = substr($out, socket_write($c, $out));
    }
}
"""

GUILE = r"""
(use-modules (ice-9 threads) (ice-9 rdelim))
(define l (socket PF_INET SOCK_STREAM 0))
(setsockopt l SOL_SOCKET SO_REUSEADDR 1)
(bind l AF_INET INADDR_LOOPBACK (string->number (cadr (command-line))))
(listen l 50)
(define (serve c)
  (let ((line (read-line c)))
    (if (eof-object? line)
        (close-port c)
        (begin (display (string-append (string-upcase line) "\n") c) (serve c)))))
(let loop ()
  (let ((c (car (accept l))))
    (setvbuf c 'none)
    (call-with-new-thread (lambda () (serve c))))
  (loop))
"""

R = r"""
port <- as.integer(commandArgs(TRUE)[1])
l <- serverSocket(port)
conns <- list()
repeat {
  ready <- socketSelect(c(list(l), conns))
  if (ready[1]) conns <- c(conns, list(socketAccept(l, blocking = FALSE, open = "r+")))
  gone <- c()
  for (i in seq_along(conns)[ready[-1]]) {
    lines <- readLines(conns[[i]], warn = FALSE)
    if (length(lines)) writeLines(toupper(lines), conns[[i]])
    else if (!isIncomplete(conns[[i]])) { close(conns[[i]]); gone <- c(gone, i) }
  }
  if (length(gone)) conns <- conns[-gone]
}
"""

R_CLIENT = r"""
port <- as.integer(commandArgs(TRUE)[1])
good <- 0
for (n in 1:10) {
  con <- socketConnection("127.0.0.1", port, open = "r+", blocking = TRUE, timeout = 60)
  for (m in 1:30) {
    line <- paste0(n, " ", strrep("abc", (m %% 5) * 700))
    writeLines(line, con)
    good <- good + identical(readLines(con, 1), toupper(line))
  }
  close(con)
}
cat(good, "\n")
"""


def capitals(run, interpreter, server):
    run.talk(interpreter, server, CLIENT, right=20, what="clients whose lines were right", asks=sys.executable, status=None)
    return "20 clients, 31 lines each right"


@entry("Tcl", "socket -server and fileevent, 20 clients at once", needs=["tclsh"],
       version=["dpkg-query", "-W", "tcl"], at_least=15, killed=5)
def tcl(run):
    return capitals(run, "tclsh", TCL)


@entry("Perl", "IO::Socket and IO::Select, 20 clients at once", needs=["perl"], version=["perl", "-v"], at_least=15, killed=5)
def perl(run):
    return capitals(run, "perl", PERL)


@entry("PHP", "the sockets extension: socket_select, 20 clients at once", needs=["php"], version=["php", "-v"], at_least=15, killed=5)
def php_sockets(run):
    return capitals(run, "php", PHP)


@entry("Guile", "a thread for each connection, 20 clients at once", needs=["guile"], version=["guile", "--version"], at_least=15, killed=5)
def guile(run):
    return capitals(run, "guile", GUILE)


@entry("R", "socketSelect with non-blocking connections; a client of R's, one connection after the other", needs=["Rscript"],
       version=["Rscript", "--version"], at_least=8, killed=2)
def r(run):
    run.talk("Rscript", R, R_CLIENT, right=300, what="right lines", status=None)
    return "300 lines right"
