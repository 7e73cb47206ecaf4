"""Erlang's gen_tcp: processes that are sent what arrives (active), ask for it (passive), or are sent one piece at a time (once)."""

import shim
from matrix import entry

# A server whose connections echo, in each of the modes, and clients that send and receive at once. Packets have a length of 4 octets,
# which the emulator reads and writes, or none.
SCRIPT = r"""
main(["server", Port]) ->
    {ok, Listener} = gen_tcp:listen(list_to_integer(Port), [binary, {ip, {127,0,0,1}}, {packet, 4}, {active, false},
                                                            {reuseaddr, true}, {backlog, 128}]),
    accept(Listener);
main(["client", Port, Count]) ->
    N = list_to_integer(Count), Me = self(),
    [spawn_link(fun() -> Me ! client(list_to_integer(Port), Number) end) || Number <- lists:seq(1, N)],
    Right = [receive Answer -> Answer end || _ <- lists:seq(1, N)],
    io:format("~p~n", [length([ok || ok <- Right])]).

accept(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Pid = spawn(fun() -> receive go -> ok end, {ok, Mode} = gen_tcp:recv(Socket, 0), echo(Mode, Socket) end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listener).

echo(<<"passive">>, Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} -> ok = gen_tcp:send(Socket, Data), echo(<<"passive">>, Socket);
        {error, closed} -> ok
    end;
echo(Mode, Socket) ->
    ok = inet:setopts(Socket, [{active, case Mode of <<"once">> -> once; _ -> true end}]),
    active(Mode, Socket).

active(Mode, Socket) ->
    receive
        {tcp, Socket, Data} -> ok = gen_tcp:send(Socket, Data), echo(Mode, Socket);
        {tcp_closed, Socket} -> ok
    end.

client(Port, Number) ->
    Mode = lists:nth(Number rem 3 + 1, [<<"passive">>, <<"active">>, <<"once">>]),
    {ok, Socket} = gen_tcp:connect({127,0,0,1}, Port, [binary, {packet, 4}, {active, false}, {nodelay, true}]),
    ok = gen_tcp:send(Socket, Mode),
    Messages = [binary:copy(<<(N * Number):32>>, Size) || N <- lists:seq(1, 5), Size <- [0, 1, 100, 5000, 100000]],
    Sender = spawn_link(fun() -> [ok = gen_tcp:send(Socket, M) || M <- Messages] end),
    Got = [element(2, gen_tcp:recv(Socket, 0)) || _ <- Messages],
    unlink(Sender),
    ok = gen_tcp:close(Socket),
    case Got of Messages -> ok; _ -> wrong end.
"""


@entry("Erlang", "gen_tcp, packets with their length: active, passive, once; 30 clients at once", needs=["escript"],
       version=["dpkg-query", "-W", "erlang-base"], at_least=15)
def erlang(run):
    port = shim.free_port()
    script = run.write("script", "#!/usr/bin/env escript\n" + SCRIPT)
    env = {"HOME": run.folder}
    child = run.serve(port, "escript", script, "server", str(port), env=env)
    count = 300 if run.long else 30
    run.same(run.call("escript", script, "client", str(port), str(count), env=env).strip(), str(count), "clients that were right")
    run.stop(child, status=None)
    return "%d clients, 25 messages each right" % count
