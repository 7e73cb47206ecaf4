/* sockwarp-bench: the command line. See bench.h for what goes over the wire. */
#include "bench/bench.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PORT "5210"

static void usage(FILE *to)
{
    fputs("usage: sockwarp-bench server   [-a ADDR] [-p PORT]\n"
          "       sockwarp-bench stream   -c HOST [-p PORT] [-l LEN] [-t SECONDS] [-P STREAMS] [-R] ...\n"
          "       sockwarp-bench pingpong -c HOST [-p PORT] [-l LEN] [-t SECONDS] [-P STREAMS] ...\n"
          "\n"
          "  server     serves clients until SIGINT or SIGTERM; prints \"listening on port N\"\n"
          "  stream     blocks of LEN octets one way, as fast as it goes\n"
          "  pingpong   a block there and the same block back, round trip times\n"
          "\n"
          "  -a, --address ADDR    server: address to listen on (default: all)\n"
          "  -c, --connect HOST    the server's name or address\n"
          "  -p, --port PORT       default " DEFAULT_PORT "; server: 0 takes a free one\n"
          "  -l, --length LEN      octets a block, suffix K or M (default 128K, pingpong 64)\n"
          "  -b, --receive LEN     octets a recv() asks for (default 128K, at least a block)\n"
          "  -t, --time SECONDS    default 5; fractions are allowed\n"
          "  -P, --streams N       connections, each with a thread (default 1)\n"
          "  -R, --reverse         stream: the server sends\n"
          "      --nodelay         TCP_NODELAY at both ends (pingpong: always)\n"
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

static int parse_streams(const char *option, const char *text, unsigned *out)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || v == 0 || v > BENCH_STREAMS_MAX)
        return complain(option, text, "a number from 1 to 1024");
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

enum { OPT_NODELAY = 256, OPT_VERIFY };

static const struct option long_options[] = {
    { "address", required_argument, NULL, 'a' }, { "connect", required_argument, NULL, 'c' },
    { "port", required_argument, NULL, 'p' },    { "length", required_argument, NULL, 'l' },
    { "receive", required_argument, NULL, 'b' }, { "time", required_argument, NULL, 't' },
    { "streams", required_argument, NULL, 'P' }, { "reverse", no_argument, NULL, 'R' },
    { "nodelay", no_argument, NULL, OPT_NODELAY }, { "verify", no_argument, NULL, OPT_VERIFY },
    { "json", no_argument, NULL, 'j' },          { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

struct command_line {
    struct bench_client_options client;
    const char *addr; /* server */
    char given_buf[64]; /* the options seen, to find those that the command does not have */
};

/* 0 go on, 1 help was printed, -1 wrong (said). */
static int parse(int argc, char **argv, struct command_line *cl)
{
    struct bench_client_options *o = &cl->client;
    size_t seen = 0;
    int c;

    while ((c = getopt_long(argc, argv, "a:c:p:l:b:t:P:Rjh", long_options, NULL)) != -1) {
        int r = 0;
        switch (c) {
        case 'a': cl->addr = optarg; break;
        case 'c': o->host = optarg; break;
        case 'p': o->port = optarg; r = parse_port("--port", optarg); break;
        case 'l': r = parse_size("--length", optarg, &o->req.len); break;
        case 'b': r = parse_size("--receive", optarg, &o->req.recv_len); break;
        case 't': r = parse_time("--time", optarg, &o->time_ms); break;
        case 'P': r = parse_streams("--streams", optarg, &o->streams); break;
        case 'R': o->req.mode = BENCH_REVERSE; break;
        case OPT_NODELAY: o->req.nodelay = true; c = 'N'; break;
        case OPT_VERIFY: o->req.verify = true; c = 'V'; break;
        case 'j': o->json = true; break;
        case 'h': usage(stdout); return 1;
        default: return -1; /* getopt has said it */
        }
        if (r < 0)
            return -1;
        if (seen < sizeof(cl->given_buf) - 1)
            cl->given_buf[seen++] = (char)c;
    }
    if (optind < argc) {
        fprintf(stderr, "sockwarp-bench: '%s': unexpected argument\n", argv[optind]);
        return -1;
    }
    return 0;
}

/* Options that a command does not have are mistakes, not noise. */
static int only(const struct command_line *cl, const char *command, const char *allowed)
{
    size_t n = strspn(cl->given_buf, allowed);
    if (cl->given_buf[n] == '\0')
        return 0;
    for (const struct option *o = long_options; o->name; o++) {
        int c = o->val == OPT_NODELAY ? 'N' : o->val == OPT_VERIFY ? 'V' : o->val;
        if (c == cl->given_buf[n])
            fprintf(stderr, "sockwarp-bench: %s has no option --%s\n", command, o->name);
    }
    return -1;
}

int main(int argc, char **argv)
{
    struct command_line cl = { .client = { .port = DEFAULT_PORT, .streams = 1, .time_ms = 5000 } };
    struct bench_client_options *o = &cl.client;

    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    const char *command = argv[1];
    if (strcmp(command, "-h") == 0 || strcmp(command, "--help") == 0) {
        usage(stdout);
        return 0;
    }
    bool server = strcmp(command, "server") == 0, pingpong = strcmp(command, "pingpong") == 0;
    if (!server && !pingpong && strcmp(command, "stream") != 0) {
        fprintf(stderr, "sockwarp-bench: '%s' is not server, stream or pingpong; see --help\n", command);
        return 2;
    }
    argv[1] = argv[0]; /* for getopt's messages */
    int r = parse(argc - 1, argv + 1, &cl);
    if (r > 0)
        return 0;
    if (r < 0 || only(&cl, command, server ? "ap" : pingpong ? "cplbtPNVj" : "cplbtPRNVj") < 0) {
        fprintf(stderr, "sockwarp-bench: see --help\n");
        return 2;
    }
    if (server)
        return bench_server(cl.addr, o->port);
    if (!o->host) {
        fprintf(stderr, "sockwarp-bench: %s needs --connect HOST\n", command);
        return 2;
    }
    if (pingpong) {
        o->req.mode = BENCH_PINGPONG;
        o->req.nodelay = true;
    } else if (o->req.mode == 0) {
        o->req.mode = BENCH_STREAM;
    }
    if (o->req.len == 0)
        o->req.len = pingpong ? 64 : 128u << 10;
    if (o->req.recv_len == 0)
        o->req.recv_len = o->req.len > 128u << 10 ? o->req.len : 128u << 10;
    return bench_client(o);
}
