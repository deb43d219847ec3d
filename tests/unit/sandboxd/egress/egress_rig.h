/** egress_rig.h - the egress process's loop in a thread, with a launcher, an upstream DNS server, a web server and a
 *  sandbox around it, all of them ours and on the loopback address. */
#pragma once

#include "sandboxd/egress/egress.h"

#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ldns/ldns.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { RIG_SANDBOX = 7, RIG_WAIT_MS = 30000 };

struct rig {
    pthread_t egress, upstream, launcher;
    int line;                         /* the launcher's end */
    int udp, tcp;                     /* the upstream server */
    int web;                          /* where every connection of the proxy comes out */
    uint16_t dns_udp, dns_tcp, proxy; /* the sandbox's ports */
    atomic_bool refuses_pins, holds_pins, is_over;
    atomic_uint pins, questions, rules;
    pthread_mutex_t mutex;
    struct eg_pin last_pin;
    bool ended_well;
};

/* Where the next connections of the sandbox "were going", and where the proxy dialled last. */
static _Atomic uint32_t rig_destination, rig_dialled;
static _Atomic uint16_t rig_port, rig_web_port;

static inline struct sockaddr_in rig_loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static inline int rig_bound(int type, uint16_t *port)
{
    struct sockaddr_in at = rig_loopback(*port);
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    const int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && (type != SOCK_STREAM || listen(fd, 512) == 0));
    CHECK(getsockname(fd, (struct sockaddr *)&at, &size) == 0);
    *port = ntohs(at.sin_port);
    return fd;
}

/* The upstream server's two sockets have one port: whatever is free for both. */
static inline void rig_bind_upstream(struct rig *rig, uint16_t *port)
{
    for (int tries = 0; tries < 100; tries++) {
        *port = 0;
        rig->udp = rig_bound(SOCK_DGRAM, port);
        struct sockaddr_in at = rig_loopback(*port);
        rig->tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(rig->tcp, (struct sockaddr *)&at, sizeof at) == 0 && listen(rig->tcp, 512) == 0)
            return;
        close(rig->udp);
        close(rig->tcp);
    }
    (void)fprintf(stderr, "no port is free for both UDP and TCP\n");
    exit(1);
}

static inline int rig_connect(uint16_t port)
{
    struct sockaddr_in at = rig_loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

/* ---- the upstream server ---- */

static const struct {
    const char *name, *records; /* text form, a line each; "" none; NULL: NXDOMAIN */
    bool is_silent, is_cut;
} RIG_ZONE[] = {
    {"good.test.", "good.test. 5 IN A 203.0.113.7", false, false},
    {"also.test.", "also.test. 60 IN A 203.0.113.8\nalso.test. 60 IN A 203.0.113.7", false, false},
    {"evil.test.", "evil.test. 60 IN A 203.0.113.66", false, false},
    {"rebind.test.",
     "rebind.test. 60 IN A 127.0.0.1\nrebind.test. 60 IN A 10.1.2.3\nrebind.test. 60 IN A "
     "169.254.169.254\nrebind.test. 60 IN A 203.0.113.9",
     false, false},
    {"inner.test.", "inner.test. 60 IN A 192.168.1.1", false, false},
    {"mapped.test.", "mapped.test. 60 IN AAAA ::ffff:10.0.0.1", false, false},
    {"alias.test.", "alias.test. 60 IN CNAME deep.test.\ndeep.test. 60 IN A 203.0.113.10", false, false},
    {"alias2.test.", "alias2.test. 60 IN CNAME db.corp.\ndb.corp. 60 IN A 10.9.9.9", false, false},
    {"a.wild.test.", "a.wild.test. 60 IN A 203.0.113.11", false, false},
    {"ssh.test.", "ssh.test. 60 IN A 203.0.113.12", false, false},
    {"cut.test.", "cut.test. 60 IN A 203.0.113.13", false, true},
    {"mail.test.", "mail.test. 60 IN MX 5 good.test.\nmail.test. 60 IN AAAA 2001:db8::1\nmail.test. 60 IN A 10.0.0.9",
     false, false},
    {"silent.test.", "", true, false},
};

static inline void rig_add_records(ldns_pkt *reply, const char *records)
{
    AUTO_FREE char *copy = strdup(records);
    char *rest = NULL;
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        ldns_rr *record = NULL;
        CHECK(ldns_rr_new_frm_str(&record, line, 0, NULL, NULL) == LDNS_STATUS_OK);
        ldns_pkt_push_rr(reply, LDNS_SECTION_ANSWER, record);
    }
}

/* The answer to a query; 0: none. */
static inline size_t rig_answer(struct rig *rig, const uint8_t *query, size_t size, bool is_tcp, uint8_t to[4096])
{
    ldns_pkt *packet = NULL;
    uint8_t *wire = NULL;
    size_t length = 0;
    bool is_known = false;
    bool is_silent = false;
    if (ldns_wire2pkt(&packet, query, size) != LDNS_STATUS_OK)
        return 0;
    rig->questions++;
    AUTO_FREE char *name = ldns_rdf2str(ldns_rr_owner(ldns_rr_list_rr(ldns_pkt_question(packet), 0)));
    ldns_pkt_set_qr(packet, true);
    for (size_t i = 0; i < sizeof RIG_ZONE / sizeof RIG_ZONE[0]; i++) {
        if (strcasecmp(RIG_ZONE[i].name, name) != 0)
            continue;
        is_known = true;
        is_silent = RIG_ZONE[i].is_silent;
        if (RIG_ZONE[i].is_cut && !is_tcp)
            ldns_pkt_set_tc(packet, true);
        else
            rig_add_records(packet, RIG_ZONE[i].records);
    }
    if (!is_known)
        ldns_pkt_set_rcode(packet, LDNS_RCODE_NXDOMAIN);
    CHECK(ldns_pkt2wire(&wire, packet, &length) == LDNS_STATUS_OK && length < 4096);
    memcpy(to, wire, length);
    free(wire);
    ldns_pkt_free(packet);
    return is_silent ? 0 : length;
}

static inline void rig_serve_tcp(struct rig *rig)
{
    uint8_t query[4098];
    uint8_t answer[4098];
    int fd = accept4(rig->tcp, NULL, NULL, SOCK_CLOEXEC);
    ssize_t got = recv(fd, query, sizeof query, 0);
    size_t size = got > 2 ? rig_answer(rig, query + 2, (size_t)got - 2, true, answer + 2) : 0;
    answer[0] = (uint8_t)(size >> 8);
    answer[1] = (uint8_t)size;
    CHECK(send(fd, answer, size + 2, MSG_NOSIGNAL) == (ssize_t)size + 2);
    close(fd);
}

static inline void *rig_upstream(void *cookie)
{
    struct rig *rig = cookie;
    while (!rig->is_over) {
        struct pollfd polled[] = {{.fd = rig->udp, .events = POLLIN}, {.fd = rig->tcp, .events = POLLIN}};
        uint8_t query[4096];
        uint8_t answer[4096];
        struct sockaddr_in from;
        socklen_t from_size = sizeof from;
        if (poll(polled, 2, 50) <= 0)
            continue;
        if (polled[1].revents)
            rig_serve_tcp(rig);
        if (!polled[0].revents)
            continue;
        ssize_t got = recvfrom(rig->udp, query, sizeof query, 0, (struct sockaddr *)&from, &from_size);
        size_t size = got > 0 ? rig_answer(rig, query, (size_t)got, false, answer) : 0;
        if (size > 0)
            (void)sendto(rig->udp, answer, size, 0, (struct sockaddr *)&from, from_size);
    }
    return NULL;
}

/* ---- the launcher ---- */

static inline void rig_on_pin(struct rig *rig, const struct launcher_egress_message *message)
{
    struct launcher_egress_message answer = {.type = EG_PINNED, .request = message->request};
    struct error err = {0};
    pthread_mutex_lock(&rig->mutex);
    rig->last_pin = message->as.pin;
    pthread_mutex_unlock(&rig->mutex);
    rig->pins++;
    answer.as.pinned = (struct eg_pinned){.number = message->as.pin.number, .ok = !rig->refuses_pins};
    if (!rig->holds_pins)
        CHECK(launcher_egress_send(rig->line, &answer, NULL, 0, &err) || err.system_errno == EPIPE); /* it has ended */
}

static inline void *rig_launcher(void *cookie)
{
    struct rig *rig = cookie;
    struct launcher_egress_message message;
    struct error err = {0};
    int fds[EG_FDS];
    size_t count = 0;
    while (launcher_egress_receive(rig->line, &message, EG_FROM_EGRESS, fds, &count, &err) == 1) {
        if (message.type == EG_PIN)
            rig_on_pin(rig, &message);
    }
    return NULL;
}

/* What the sandboxes that are told of next deny. */
static const char *rig_denied = "";

static inline void rig_say_sandbox(struct rig *rig, uint64_t number, enum launcher_egress_mode mode, const char *names,
                                   const int *fds)
{
    struct launcher_egress_message message = {.type = EG_SANDBOX};
    struct error err = {0};
    rig->rules++;
    message.as.sandbox = (struct eg_sandbox){
        .id = "sbx_0123456789abcdefghij", .number = number, .mode = mode, .rules = (uint32_t)rig->rules};
    memcpy(message.as.sandbox.allow, names, strlen(names));
    memcpy(message.as.sandbox.deny, rig_denied, strlen(rig_denied));
    CHECK(launcher_egress_send(rig->line, &message, fds, fds ? EG_FDS : 0, &err));
}

/* A sandbox with fresh sockets, whose ports the rig then knows. */
static inline void rig_new_sandbox(struct rig *rig, uint64_t number, enum launcher_egress_mode mode, const char *names)
{
    rig->dns_udp = rig->dns_tcp = rig->proxy = 0;
    const int fds[EG_FDS] = {rig_bound(SOCK_DGRAM, &rig->dns_udp), rig_bound(SOCK_STREAM, &rig->dns_tcp),
                             rig_bound(SOCK_STREAM, &rig->proxy)};
    rig_say_sandbox(rig, number, mode, names, fds);
    for (size_t i = 0; i < EG_FDS; i++)
        close(fds[i]);
}

/* ---- the process ---- */

static bool rig_find_destination(int fd UNUSED, uint32_t *address, uint16_t *port)
{
    *address = rig_destination;
    *port = rig_port;
    return rig_port != 0;
}

static int rig_dial(uint32_t address, uint16_t port UNUSED)
{
    struct sockaddr_in at = rig_loopback(rig_web_port);
    rig_dialled = address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) < 0 && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Whether egress_run is a process of its own, with all rights given up, rather than a thread. */
static pid_t rig_process;

static bool rig_confine(const struct eg_config *config UNUSED, struct error *err UNUSED)
{
    return true;
}

static int rig_egress_end;

static inline void *rig_run(void *cookie)
{
    struct rig *rig = cookie;
    struct error err = {0};
    const struct egress_options options = {.launcher = rig_egress_end,
                                           .face = {.destination = rig_find_destination, .dial = rig_dial},
                                           .confine = rig_confine};
    rig->ended_well = egress_run(&options, &err);
    if (!rig->ended_well)
        (void)fprintf(stderr, "egress_run: %s\n", err.message);
    return NULL;
}

/* As a process, the destination is what it was at the start. */
static inline void rig_fork(struct rig *rig, bool (*confine)(const struct eg_config *, struct error *))
{
    fflush(NULL);
    rig_process = fork();
    if (rig_process != 0)
        return;
    struct error err = {0};
    const struct egress_options options = {.launcher = rig_egress_end,
                                           .face = {.destination = rig_find_destination, .dial = rig_dial},
                                           .confine = confine};
    close(rig->line);
    bool ended_well = egress_run(&options, &err);
    if (!ended_well)
        (void)fprintf(stderr, "egress_run: %s\n", err.message);
    _exit(ended_well ? 0 : 1);
}

/* `confine`: NULL runs it as a thread. */
static inline void rig_start_as(struct rig *rig, bool (*confine)(const struct eg_config *, struct error *))
{
    int ends[2];
    uint16_t port = 0;
    uint16_t web_port = 0;
    struct error err = {0};
    *rig = (struct rig){.mutex = PTHREAD_MUTEX_INITIALIZER};
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    rig->line = ends[0];
    rig_egress_end = ends[1];
    rig_bind_upstream(rig, &port);
    rig->web = rig_bound(SOCK_STREAM, &web_port);
    rig_web_port = web_port;
    struct launcher_egress_message config = {.type = EG_CONFIG,
                                             .as.config = {.uid = 1,
                                                           .gid = 1,
                                                           .log_level = confine ? 0 : 3,
                                                           .server_count = 1,
                                                           .servers = {{rig_loopback(0).sin_addr.s_addr, port, 0}}}};
    CHECK(launcher_egress_send(rig->line, &config, NULL, 0, &err));
    if (confine != NULL)
        rig_fork(rig, confine);
    else
        pthread_create(&rig->egress, NULL, rig_run, rig);
    if (confine != NULL)
        close(rig_egress_end);
    struct launcher_egress_message ready;
    int fds[EG_FDS];
    size_t count = 0;
    CHECK(launcher_egress_receive(rig->line, &ready, EG_FROM_EGRESS, fds, &count, &err) == 1 && ready.type == EG_READY);
    if (check_failures > 0)
        exit(1); /* nothing would be answered */
    pthread_create(&rig->launcher, NULL, rig_launcher, rig);
    pthread_create(&rig->upstream, NULL, rig_upstream, rig);
}

static inline void rig_start(struct rig *rig)
{
    rig_start_as(rig, NULL);
}

static inline void rig_stop(struct rig *rig)
{
    int status = 1;
    shutdown(rig->line, SHUT_RDWR);
    if (rig_process > 0)
        rig->ended_well = waitpid(rig_process, &status, 0) == rig_process && status == 0;
    else
        pthread_join(rig->egress, NULL);
    pthread_join(rig->launcher, NULL);
    rig->is_over = true;
    pthread_join(rig->upstream, NULL);
    close(rig->line);
    close(rig->udp);
    close(rig->tcp);
    close(rig->web);
    CHECK(rig->ended_well);
}

/* ---- the sandbox's side ---- */

static inline size_t rig_query(const char *name, uint16_t type, uint8_t to[512])
{
    ldns_pkt *packet = NULL;
    uint8_t *wire = NULL;
    size_t size = 0;
    CHECK(ldns_pkt_query_new_frm_str(&packet, name, (ldns_rr_type)type, LDNS_RR_CLASS_IN, LDNS_RD) == LDNS_STATUS_OK);
    ldns_pkt_set_id(packet, 0x4242);
    CHECK(ldns_pkt2wire(&wire, packet, &size) == LDNS_STATUS_OK && size <= 512);
    memcpy(to, wire, size);
    free(wire);
    ldns_pkt_free(packet);
    return size;
}

/* What the sandbox is told by UDP: "RCODE address ..." in the order of the answer; "" when nothing came in `ms`. */
static inline void rig_told(const uint8_t *reply, size_t size, char to[512])
{
    ldns_pkt *packet = NULL;
    CHECK(ldns_wire2pkt(&packet, reply, size) == LDNS_STATUS_OK);
    CHECK(ldns_pkt_id(packet) == 0x4242 && ldns_pkt_qr(packet));
    int length = snprintf(to, 512, "%d", (int)ldns_pkt_get_rcode(packet));
    ldns_rr_list *answers = ldns_pkt_answer(packet);
    for (size_t i = 0; i < ldns_rr_list_rr_count(answers) && length < 400; i++) {
        AUTO_FREE char *text = ldns_rdf2str(ldns_rr_rdf(ldns_rr_list_rr(answers, i), 0));
        length += snprintf(to + length, 512 - (size_t)length, " %s", text);
    }
    ldns_pkt_free(packet);
}

static inline bool rig_ask_within(struct rig *rig, const char *name, uint16_t type, int ms, char to[512])
{
    uint8_t data[4096];
    struct sockaddr_in at = rig_loopback(rig->dns_udp);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    size_t size = rig_query(name, type, data);
    CHECK(sendto(fd, data, size, 0, (struct sockaddr *)&at, sizeof at) == (ssize_t)size);
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    bool came = poll(&polled, 1, ms) == 1;
    ssize_t got = came ? recv(fd, data, sizeof data, 0) : 0;
    to[0] = '\0';
    if (came)
        rig_told(data, (size_t)got, to);
    close(fd);
    return came;
}

#define rig_ask(rig, name, type, to) CHECK(rig_ask_within(rig, name, type, RIG_WAIT_MS, to))
