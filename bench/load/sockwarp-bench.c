/* sockwarp-bench: the command line. See bench.h for what goes over the wire. */
#include "bench/load/load.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PORT "5210"

static void usage(FILE *to)
{
    fputs(
        "usage: sockwarp-bench stream   -c HOST [-p PORT] [-l LEN] [-t SECONDS] [-P STREAMS] [-R] ...\n"
        "       sockwarp-bench pingpong -c HOST [-p PORT] [-l LEN] [-t SECONDS] [-P STREAMS] ...\n"
        "       sockwarp-bench server   [-a ADDR] [-p PORT]      of these two\n"
        "       sockwarp-bench connect  -c HOST [-p PORT] [-t SECONDS] [-P STREAMS] ...\n"
        "       sockwarp-bench answer   [-a ADDR] [-p PORT] [--by WAY]  its server\n"
        "       sockwarp-bench crowd    -c HOST [-p PORT] [-l LEN] [-t SECONDS] [--idle N] [--active N] [--steps] ...\n"
        "       sockwarp-bench echo     [-a ADDR] [-p PORT]      its server\n"
        "       sockwarp-bench file     -f PATH [-l LEN] [-t SECONDS]\n"
        "\n"
        "  stream     blocks of LEN octets one way, as fast as it goes\n"
        "  pingpong   a block there and the same block back, round trip times\n"
        "  connect    connections one after the other, an octet there and back on each\n"
        "  crowd      opens idle and active connections; the active ones send a block and wait for it\n"
        "  file       read(2) of a file, no socket\n"
        "  servers    serve until SIGINT or SIGTERM; print \"listening on port N\"\n"
        "\n"
        "  -a, --address ADDR    servers: address to listen on (default: all)\n"
        "  -c, --connect HOST    the server's name or address\n"
        "  -p, --port PORT       default " DEFAULT_PORT "; servers: 0 takes a free one\n"
        "  -l, --length LEN      octets a block, suffix K or M (default 128K; pingpong, crowd 64; file 4K)\n"
        "  -b, --receive LEN     octets a recv() asks for (default 128K, at least a block)\n"
        "  -t, --time SECONDS    default 5; fractions are allowed\n"
        "  -P, --streams N       connections at a time, each with a thread (default 1)\n"
        "  -R, --reverse         stream: the server sends\n"
        "  -f, --file PATH       file: what to read\n"
        "      --by WAY          answer: accept in turn (turn, the default), by four children (prefork), with a thread\n"
        "                        for each connection (threads), or from a set without blocking (epoll)\n"
        "      --idle N          crowd: default 10000\n"
        "      --active N        crowd: default 100\n"
        "      --steps           crowd: stop at \"ready\" and \"open\", go on at a line on standard input\n"
        "      --nodelay         TCP_NODELAY at both ends (pingpong, crowd: always)\n"
        "      --congestion NAME congestion control of this end (default: the system's)\n"
        "      --verify          check every octet against a pattern; exit status 1 if one differs\n"
        "  -j, --json            one JSON object instead of text\n"
        "  -h, --help            this\n",
        to);
}

static int complain(const char *option, const char *value, const char *want)
{
    fprintf(stderr, "sockwarp-bench: %s: '%s' is not %s\n", option, value, want);
    return -1;
}

static int parse_size(const char *option, const char *text, uint32_t *out)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    unsigned shift = 0;
    if (*end == 'K' || *end == 'k')
        shift = 10;
    else if (*end == 'M' || *end == 'm')
        shift = 20;
    if (shift)
        end++;
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno || v == 0 || v > BENCH_LEN_MAX ||
        v << shift > BENCH_LEN_MAX)
        return complain(option, text, "a size from 1 to 64M");
    *out = (uint32_t)(v << shift);
    return 0;
}

static int parse_time(const char *option, const char *text, uint32_t *out_ms)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end != '\0' || !(v >= 0.01 && v <= BENCH_SECONDS_MAX))
        return complain(option, text, "a number of seconds from 0.01 to 86400");
    *out_ms = (uint32_t)(v * 1000);
    return 0;
}

static int parse_number(const char *option, const char *text, unsigned min, unsigned max, unsigned *out)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || v < min || v > max) {
        char want[64];
        snprintf(want, sizeof(want), "a number from %u to %u", min, max);
        return complain(option, text, want);
    }
    *out = (unsigned)v;
    return 0;
}

static int parse_port(const char *option, const char *text)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || v > 65535)
        return complain(option, text, "a port from 0 to 65535");
    return 0;
}

static int parse_congestion(const char *text, const char **out)
{
    if (text[0] == '\0' || strlen(text) >= BENCH_CONGESTION_LEN)
        return complain("--congestion", text, "the name of a congestion control");
    *out = text;
    return 0;
}

/* The long options' letters, where they have no short form: a command's list of options names them. */
#define OPT_NODELAY 'N'
#define OPT_VERIFY 'V'
#define OPT_CONGESTION 'C'
#define OPT_IDLE 'I'
#define OPT_ACTIVE 'A'
#define OPT_STEPS 'S'
#define OPT_BY 'B'

static const struct option long_options[] = {
    { "address", required_argument, NULL, 'a' },
    { "connect", required_argument, NULL, 'c' },
    { "port", required_argument, NULL, 'p' },
    { "length", required_argument, NULL, 'l' },
    { "receive", required_argument, NULL, 'b' },
    { "time", required_argument, NULL, 't' },
    { "streams", required_argument, NULL, 'P' },
    { "reverse", no_argument, NULL, 'R' },
    { "file", required_argument, NULL, 'f' },
    { "nodelay", no_argument, NULL, OPT_NODELAY },
    { "verify", no_argument, NULL, OPT_VERIFY },
    { "congestion", required_argument, NULL, OPT_CONGESTION },
    { "idle", required_argument, NULL, OPT_IDLE },
    { "active", required_argument, NULL, OPT_ACTIVE },
    { "steps", no_argument, NULL, OPT_STEPS },
    { "by", required_argument, NULL, OPT_BY },
    { "json", no_argument, NULL, 'j' },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

static const struct command {
    const char *name;
    int (*run)(const struct bench_options *o);
    enum bench_mode mode;
    uint32_t len;        /* default */
    const char *allowed; /* options */
    char needed;         /* one of them, or '\0' */
} commands[] = {
    { "server", bench_server, 0, 0, "apC", '\0' },
    { "stream", bench_client, BENCH_STREAM, 128u << 10, "cplbtPRNVCj", 'c' },
    { "pingpong", bench_client, BENCH_PINGPONG, 64, "cplbtPNVCj", 'c' },
    { "answer", bench_answer, 0, 0, "apCB", '\0' },
    { "connect", bench_connect, 0, 0, "cptPCj", 'c' },
    { "echo", bench_echo, 0, 0, "apC", '\0' },
    { "crowd", bench_crowd, 0, 64, "cpltCIASj", 'c' },
    { "file", bench_file, 0, 4u << 10, "fltj", 'f' },
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

struct command_line {
    struct bench_options o;
    char given[64]; /* the options seen, to find those that the command does not have */
};

/* 0 go on, 1 help was printed, -1 wrong (said). */
static int parse(int argc, char **argv, struct command_line *cl)
{
    struct bench_options *o = &cl->o;
    size_t seen = 0;
    int c;

    while ((c = getopt_long(argc, argv, "a:c:p:l:b:t:P:f:Rjh", long_options, NULL)) != -1) {
        int r = 0;
        switch (c) {
        case 'a':
            o->addr = optarg;
            break;
        case 'c':
            o->host = optarg;
            break;
        case 'f':
            o->path = optarg;
            break;
        case 'p':
            o->port = optarg;
            r = parse_port("--port", optarg);
            break;
        case 'l':
            r = parse_size("--length", optarg, &o->req.len);
            break;
        case 'b':
            r = parse_size("--receive", optarg, &o->req.recv_len);
            break;
        case 't':
            r = parse_time("--time", optarg, &o->time_ms);
            break;
        case 'P':
            r = parse_number("--streams", optarg, 1, BENCH_STREAMS_MAX, &o->streams);
            break;
        case OPT_IDLE:
            r = parse_number("--idle", optarg, 0, BENCH_CROWD_MAX, &o->idle);
            break;
        case OPT_ACTIVE:
            r = parse_number("--active", optarg, 1, BENCH_CROWD_MAX, &o->active);
            break;
        case OPT_CONGESTION:
            r = parse_congestion(optarg, &o->congestion);
            break;
        case 'R':
            o->req.mode = BENCH_REVERSE;
            break;
        case OPT_NODELAY:
            o->req.nodelay = true;
            break;
        case OPT_VERIFY:
            o->req.verify = true;
            break;
        case OPT_BY:
            o->by = optarg;
            r = bench_answers_by(optarg) ? 0 : complain("--by", optarg, "turn, prefork, threads or epoll");
            break;
        case OPT_STEPS:
            o->steps = true;
            break;
        case 'j':
            o->json = true;
            break;
        case 'h':
            usage(stdout);
            return 1;
        default:
            return -1; /* getopt has said it */
        }
        if (r < 0)
            return -1;
        if (seen < sizeof(cl->given) - 1)
            cl->given[seen++] = (char)c;
    }
    if (optind < argc) {
        fprintf(stderr, "sockwarp-bench: '%s': unexpected argument\n", argv[optind]);
        return -1;
    }
    return 0;
}

static const char *option_name(char letter)
{
    for (const struct option *opt = long_options; opt->name; opt++)
        if (opt->val == letter)
            return opt->name;
    return "?";
}

/* Options that a command does not have are mistakes, not noise. */
static int check_options(const struct command_line *cl, const struct command *command)
{
    size_t n = strspn(cl->given, command->allowed);
    if (cl->given[n] != '\0') {
        fprintf(stderr, "sockwarp-bench: %s has no option --%s\n", command->name, option_name(cl->given[n]));
        return -1;
    }
    if (command->needed && !strchr(cl->given, command->needed)) {
        fprintf(stderr, "sockwarp-bench: %s needs --%s\n", command->name, option_name(command->needed));
        return -1;
    }
    return 0;
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    fprintf(stderr, "sockwarp-bench: '%s' is not", name);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(stderr, "%s %s", i == 0 ? "" : i + 1 < COMMANDS ? "," : " or", commands[i].name);
    fprintf(stderr, "; see --help\n");
    return NULL;
}

int main(int argc, char **argv)
{
    struct command_line cl = {
        .o = { .port = DEFAULT_PORT, .by = "turn", .streams = 1, .idle = 10000, .active = 100, .time_ms = 5000 },
    };
    struct bench_options *o = &cl.o;

    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0) {
        usage(stdout);
        return 0;
    }
    const struct command *command = find_command(argv[1]);
    if (!command)
        return 2;
    argv[1] = argv[0]; /* for getopt's messages */
    int r = parse(argc - 1, argv + 1, &cl);
    if (r > 0)
        return 0;
    if (r < 0 || check_options(&cl, command) < 0) {
        fprintf(stderr, "sockwarp-bench: see --help\n");
        return 2;
    }
    if (o->req.mode == 0)
        o->req.mode = command->mode;
    if (o->req.mode == BENCH_PINGPONG)
        o->req.nodelay = true;
    if (o->req.len == 0)
        o->req.len = command->len;
    if (o->req.recv_len == 0)
        o->req.recv_len = o->req.len > 128u << 10 ? o->req.len : 128u << 10;
    return command->run(o);
}
